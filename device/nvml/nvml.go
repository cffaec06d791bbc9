package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/elasticps/elasticps/device"
)

// ErrLibraryNotFound is the cause of the error for a library that cannot be loaded.
var ErrLibraryNotFound = errors.New("library cannot be loaded")

// ErrClosed is the cause of the error for a provider that was closed.
var ErrClosed = errors.New("provider is closed")

// SymbolError says which function of the library is missing.
type SymbolError struct {
	Library string
	Symbol  string
}

// Error names the library and the function.
func (e *SymbolError) Error() string {
	return fmt.Sprintf("nvml: %s has no function %s", e.Library, e.Symbol)
}

// CallError says which call the driver refused.
type CallError struct {
	Call string
	Code int // nvmlReturn_t
}

// meaning returns what a return code says about the host or a device, from nvml.h.
func meaning(code int) string {
	switch code {
	case 1:
		return "not initialized"
	case 2:
		return "invalid argument"
	case 3:
		return "not supported"
	case 4:
		return "no permission"
	case 9:
		return "driver is not loaded"
	case 10:
		return "timed out"
	case 15:
		return "GPU is lost"
	case 16:
		return "GPU requires reset"
	case 17:
		return "refused by the operating system"
	case 18:
		return "driver and library have different versions"
	}
	return "unknown error"
}

// Error names the call and what the code means.
func (e *CallError) Error() string {
	return fmt.Sprintf("nvml: %s: code %d (%s)", e.Call, e.Code, meaning(e.Code))
}

// Config says which library is loaded.
type Config struct {
	// Library is its name or path. Zero: libnvidia-ml.so.1, where the system looks for
	// libraries.
	Library string
}

// library is what the tag decides.
type library interface {
	devices(ctx context.Context) ([]device.Device, error)
	close() error
}

// Provider is a provider of the NVIDIA devices of this host.
type Provider struct {
	library library
	turn    chan struct{} // held while the library is asked

	mu     sync.Mutex
	asking bool
	closed bool
	err    error // of closing
}

var _ device.Provider = (*Provider)(nil)

// Open loads the library and initializes it. It blocks as long as the driver takes. Errors wrap
// device.ErrNotBuilt or ErrLibraryNotFound, or are a *SymbolError or *CallError.
func Open(c Config) (*Provider, error) {
	if c.Library == "" {
		c.Library = "libnvidia-ml.so.1"
	}
	lib, err := open(c.Library)
	if err != nil {
		return nil, err
	}
	return newProvider(lib), nil
}

func newProvider(lib library) *Provider {
	return &Provider{turn: make(chan struct{}, 1), library: lib}
}

// Source returns "nvml".
func (p *Provider) Source() string { return "nvml" }

// Devices asks the driver for all devices. It blocks while another call does, until ctx
// ends, and as long as the driver takes.
func (p *Provider) Devices(ctx context.Context) ([]device.Device, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("nvml: %w", ctx.Err())
	}
	if !p.begin() {
		return nil, fmt.Errorf("nvml: %w", ErrClosed)
	}
	defer p.end()
	return p.library.devices(ctx)
}

// begin reports whether the library may be asked.
func (p *Provider) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = !p.closed
	return p.asking
}

// end shuts the library down if that was asked for meanwhile.
func (p *Provider) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = false
	if p.closed {
		p.err = p.library.close()
	}
}

// Close shuts the library down. While a call to Devices is under way it does not wait for
// it, since the driver may hang: the library is shut down when that call returns. Calling it
// again has no effect and returns the error of shutting down, if that is known.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && !p.asking {
		p.err = p.library.close()
	}
	p.closed = true
	return p.err
}
