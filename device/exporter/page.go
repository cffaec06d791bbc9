package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/elasticps/elasticps/device"
)

// ErrTooLong is the cause of a PageError for a page that is longer than MaxBytes.
var ErrTooLong = errors.New("page is longer than the bound")

// PageError says which page could not be fetched. Unwrap gives the cause, which is nil
// when the server answered with another status than 200.
type PageError struct {
	URL    string // without user and password
	Status int    // of HTTP, 0 if there was no answer
	Err    error
}

// Error names the page and the cause or the status.
func (e *PageError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("exporter: %s: %v", e.URL, e.Err)
	}
	return fmt.Sprintf("exporter: %s: status %d, want 200", e.URL, e.Status)
}

// Unwrap returns the cause.
func (e *PageError) Unwrap() error { return e.Err }

// Config says where a page is and how it is fetched.
type Config struct {
	// URL is the address of the page. Zero: the exporter's own port on this host.
	URL string
	// Timeout is how long a fetch may take. Zero: 5 s.
	Timeout time.Duration
	// MaxBytes bounds the page. Zero: 8 MiB.
	MaxBytes int64
	// Transport carries the requests, for TLS and tests. Zero: http.DefaultTransport.
	Transport http.RoundTripper
}

// validate reports every fault of the configuration at once.
func (c Config) validate() error {
	var errs []error
	u, err := url.Parse(c.URL)
	if c.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		errs = append(errs, fmt.Errorf("exporter: URL %q: want http://host:port/path", c.URL))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("exporter: Timeout %v: want >= 0", c.Timeout))
	}
	if c.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("exporter: MaxBytes %d: want >= 0", c.MaxBytes))
	}
	return errors.Join(errs...)
}

// Page is a provider that fetches the page of an exporter.
type Page struct {
	cfg    Config
	name   string // of the page, for errors
	source string
	client http.Client
	parse  func(string) ([]device.Device, error)
}

var _ device.Provider = (*Page)(nil)

// DCGM returns a provider that reads a DCGM exporter, by default on port 9400 of this host.
// The error names every field of the configuration that is out of bounds.
func DCGM(c Config) (*Page, error) {
	return newPage(c, "http://localhost:9400/metrics", "dcgm-exporter", ParseDCGM)
}

// Ascend returns a provider that reads an npu-exporter, by default on port 8082 of this host.
// The error names every field of the configuration that is out of bounds.
func Ascend(c Config) (*Page, error) {
	return newPage(c, "http://localhost:8082/metrics", "npu-exporter", ParseAscend)
}

func newPage(c Config, address, source string, parse func(string) ([]device.Device, error)) (*Page, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.URL = cmp.Or(c.URL, address)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 8<<20)
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("exporter: URL: %w", err)
	}
	u.User = nil
	p := &Page{cfg: c, name: u.String(), source: source, parse: parse}
	p.client.Transport = c.Transport
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return p, nil
}

// Source returns the name of the exporter.
func (p *Page) Source() string { return p.source }

// Devices fetches the page and returns the devices on it. It blocks until it is there, ctx
// ends or Timeout has passed.
func (p *Page) Devices(ctx context.Context) ([]device.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	text, err := p.fetch(ctx)
	if err != nil {
		return nil, err
	}
	return p.parse(text)
}

func (p *Page) fetch(ctx context.Context) (string, error) {
	fail := func(err error) (string, error) {
		var fault *url.Error
		if errors.As(err, &fault) {
			err = fault.Err // without the address, which may hold a password
		}
		return "", &PageError{URL: p.name, Err: err}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.cfg.URL, nil)
	if err != nil {
		return fail(err)
	}
	request.Header.Set("Accept", "text/plain; version=0.0.4")
	answer, err := p.client.Do(request)
	if err != nil {
		return fail(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", &PageError{URL: p.name, Status: answer.StatusCode}
	}
	var text strings.Builder
	n, err := io.Copy(&text, io.LimitReader(answer.Body, p.cfg.MaxBytes+1))
	if err == nil && n > p.cfg.MaxBytes {
		err = ErrTooLong
	}
	if err != nil {
		return fail(err)
	}
	return text.String(), nil
}
