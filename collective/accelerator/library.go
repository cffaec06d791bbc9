package accelerator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/elasticps/elasticps/collective/internal/abi"
)

// Config says which libraries are loaded. Its zero value takes the first vendor that the
// program was built for and this host has devices of.
type Config struct {
	// Vendors are tried in this order. Nil: all.
	Vendors []Vendor
	// Library and Runtime are names or paths. Empty: those that the environment names, else
	// what the system finds, else where the vendor puts them; see the documentation of the
	// package. They need a single vendor.
	Library, Runtime string
	// Log tells what was loaded. Nil: nothing.
	Log *slog.Logger
}

func (c *Config) validate() error {
	if len(c.Vendors) == 0 {
		c.Vendors = []Vendor{NVIDIA, AMD, MooreThreads, Ascend}
	}
	if (c.Library != "" || c.Runtime != "") && len(c.Vendors) != 1 {
		return argument("paths of libraries for %d vendors, must be for one", len(c.Vendors))
	}
	for _, v := range c.Vendors {
		if v < NVIDIA || v > Ascend {
			return argument("%v, must be one of %v to %v", v, NVIDIA, Ascend)
		}
	}
	return nil
}

// Library is a vendor's libraries, loaded. All methods are safe from any goroutine.
type Library struct {
	abi          *abi.Library
	vendor       Vendor
	version      int // code
	capabilities Capabilities
	devices      int
	log          *slog.Logger
	joining      atomic.Int32 // threads in calls that cannot be stopped

	mu     sync.Mutex
	open   map[int]*Device
	closed bool
}

// Open loads the libraries of the first vendor that is there with a device. The error tells
// for each vendor what was missing; it wraps ErrNotBuilt, ErrLibraryNotFound, ErrSymbolMissing,
// ErrForeign, ErrNoDevice or a *CallError. It blocks as long as the drivers take to start.
func Open(c Config) (*Library, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	var errs []error
	for _, v := range c.Vendors {
		l, err := openVendor(v, &c)
		if err == nil {
			return l, nil
		}
		errs = append(errs, fmt.Errorf("accelerator: %v: %w", v, err))
	}
	return nil, errors.Join(errs...)
}

func openVendor(v Vendor, c *Config) (*Library, error) {
	loaded, err := abi.Load(abi.Vendor(v), c.Library, c.Runtime)
	if err != nil {
		return nil, err
	}
	l := &Library{abi: loaded, vendor: v, log: c.Log, open: map[int]*Device{}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if err := l.look(); err != nil {
		_ = loaded.Close() // why it cannot be used is the news
		return nil, err
	}
	l.log.Info("accelerator library loaded", "vendor", v.String(), "version", l.capabilities.Version.String(), "devices", l.devices)
	return l, nil
}

// look asks the library for its version and devices.
func (l *Library) look() error {
	code, failed := l.abi.VersionCode()
	if failed != 0 {
		return l.callError("version", failed, 0)
	}
	l.version = code
	l.capabilities = capabilitiesOf(l.vendor, versionOf(code), l.abi.Has())
	n, failed := l.abi.DeviceCount()
	if failed != 0 {
		return fmt.Errorf("%w: %w", ErrNoDevice, l.runtimeError("device count", failed))
	}
	if n == 0 {
		return ErrNoDevice
	}
	l.devices = n
	return nil
}

// Capabilities returns what the library can do.
func (l *Library) Capabilities() Capabilities { return l.capabilities }

// Devices returns the number of devices that the process may use. They are numbered from 0
// as the runtime does, after the visibility variables of the vendor.
func (l *Library) Devices() int { return l.devices }

// Device begins the use of a device: all that is done with it is done on one thread of the
// operating system, which the Device has until it is closed. A device can be begun once at
// a time.
func (l *Library) Device(ctx context.Context, index int) (*Device, error) {
	if index < 0 || index >= l.devices {
		return nil, argument("device %d, must be 0 to %d", index, l.devices-1)
	}
	l.mu.Lock()
	if l.closed || l.open[index] != nil {
		defer l.mu.Unlock()
		if l.closed {
			return nil, errClosed("library")
		}
		return nil, argument("device %d is in use", index)
	}
	d := newDevice(l, index)
	l.open[index] = d
	l.mu.Unlock()
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// forget takes a closed device from the list.
func (l *Library) forget(d *Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[d.index] == d {
		delete(l.open, d.index)
	}
}

// Close closes all devices and gives the libraries up. They stay in the process. While a
// device hangs, its error wraps ErrHung, and the libraries are not given up.
func (l *Library) Close() error {
	l.mu.Lock()
	l.closed = true
	devices := make([]*Device, 0, len(l.open))
	for _, d := range l.open {
		devices = append(devices, d)
	}
	l.mu.Unlock()
	var errs []error
	for _, d := range devices {
		errs = append(errs, d.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if n := l.joining.Load(); n > 0 {
		return fmt.Errorf("%w: %d calls still wait for ranks", ErrHung, n)
	}
	return l.abi.Close()
}

func (l *Library) callError(call string, code int, comm abi.Handle) error {
	return &CallError{Vendor: l.vendor, Call: call, Code: code, Text: l.abi.Text(false, code, comm)}
}

func (l *Library) runtimeError(call string, code int) error {
	return &CallError{Vendor: l.vendor, Call: call, Runtime: true, Code: code, Text: l.abi.Text(true, code, 0)}
}

// busy reports whether a code says that the library goes on in the background.
func (l *Library) busy(code int) bool { return l.vendor != Ascend && code == inProgress }

// failed reports whether a code is that of an error.
func (l *Library) failed(code int) bool { return code != success && !l.busy(code) }

// check is nil for the code of success of the runtime.
func (l *Library) check(call string, code int) error {
	if code == success {
		return nil
	}
	return l.runtimeError(call, code)
}
