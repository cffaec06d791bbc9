package sched

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Milli is an amount in thousandths: of a processor core, of a device, of a unit of a
// custom resource. Integers add up exactly: a tenth of a device and nine tenths are one.
type Milli int64

// String returns the amount in units: 1500 is "1.5".
func (m Milli) String() string { return strconv.FormatFloat(float64(m)/float64(Whole), 'f', -1, 64) }

// Whole is one core, one device or one unit.
const Whole Milli = 1000

// Limits of one node or one request.
const (
	// MaxDevices is the greatest number of devices of a node.
	MaxDevices = 16
	// MaxAmount bounds every amount: of Milli, and of memory in bytes.
	MaxAmount = 1 << 50
	// MaxModels is the greatest number of device models of a cluster.
	MaxModels = 64
	// MaxCustom is the greatest number of custom resources of a cluster.
	MaxCustom = 32
)

// Request is what a task takes of one node. The zero value takes nothing.
type Request struct {
	// CPU is processor time, in thousandths of a core.
	CPU Milli
	// MemoryBytes is the memory of the host.
	MemoryBytes int64
	// Devices is the number of accelerators, of whatever vendor.
	Devices int
	// Share is taken of each of the devices, 1 to 1000; 0 means Whole when Devices is
	// over 0.
	Share Milli
	// Models are the device models that will do; any if empty.
	Models []string
	// Vendors are the vendors that will do; any if empty.
	Vendors []string
	// Custom is taken of custom resources, by name.
	Custom map[string]Milli
}

// DevicesOf turns an amount of devices as people write it into a number of devices and
// the share of each: 0.5 is half of one, 2 is two whole ones. Amounts that are not
// finite, not positive, over MaxDevices, a fraction above 1 or finer than a thousandth
// are refused.
func DevicesOf(amount float64) (devices int, share Milli, err error) {
	milli := math.Round(amount * float64(Whole))
	switch {
	case math.IsNaN(amount) || math.IsInf(amount, 0):
		return 0, 0, fmt.Errorf("sched: Devices %v: want a finite number", amount)
	case amount <= 0 || amount > MaxDevices:
		return 0, 0, fmt.Errorf("sched: Devices %v: want over 0 and at most %d", amount, MaxDevices)
	case math.Abs(milli-amount*float64(Whole)) > 1e-6:
		return 0, 0, fmt.Errorf("sched: Devices %v: want a multiple of 0.001", amount)
	case amount < 1:
		return 1, Milli(milli), nil
	case amount != math.Trunc(amount):
		return 0, 0, fmt.Errorf("sched: Devices %v: want a whole number above 1, or a fraction of one device", amount)
	}
	return int(amount), Whole, nil
}

// normal fills in the share that goes without saying.
func (r Request) normal() Request {
	if r.Devices > 0 {
		r.Share = cmp.Or(r.Share, Whole)
	}
	return r
}

// prefixed puts the name of the package in front of what check has found.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sched: %w", err)
}

func (r *Request) check() error {
	share := r.Share
	if r.Devices > 0 {
		share = cmp.Or(share, Whole)
	}
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.CPU < 0 || r.CPU > MaxAmount {
		fault("CPU %d: want 0 to %d", r.CPU, int64(MaxAmount))
	}
	if r.MemoryBytes < 0 || r.MemoryBytes > MaxAmount {
		fault("MemoryBytes %d: want 0 to %d", r.MemoryBytes, int64(MaxAmount))
	}
	if r.Devices < 0 || r.Devices > MaxDevices {
		fault("Devices %d: want 0 to %d", r.Devices, MaxDevices)
	}
	if r.Devices == 0 && share != 0 || r.Devices > 0 && (share < 1 || share > Whole) {
		fault("Share %d of %d devices: want 1 to %d of at least one", share, r.Devices, Whole)
	}
	if r.Devices == 0 && len(r.Models)+len(r.Vendors) > 0 {
		fault("Models %q, Vendors %q: want Devices over 0", r.Models, r.Vendors)
	}
	for name, v := range r.Custom {
		if name == "" || v < 0 || v > MaxAmount {
			fault("Custom[%q] %d: want a name and 0 to %d", name, v, int64(MaxAmount))
		}
	}
	return errors.Join(errs...)
}

// accelerator is what the request takes of devices, in thousandths of one.
func (r Request) accelerator() Milli { return Milli(r.Devices) * r.Share }

// Resources are sums over a cluster. Device amounts are by model.
type Resources struct {
	CPU         Milli
	MemoryBytes int64
	Devices     map[string]Milli
	Custom      map[string]Milli
}

// Accelerator returns the sum over all device models.
func (r Resources) Accelerator() Milli {
	var sum Milli
	for _, v := range r.Devices {
		sum += v
	}
	return sum
}
