package pool

import (
	"errors"
	"fmt"
	"math"

	"github.com/elasticps/elasticps/device"
)

// WholeMilli is the computing time of a whole device.
const WholeMilli = 1000

const (
	maxDevices     = 4096
	maxFactor      = 16
	maxMemoryBytes = 1 << 46 // times maxFactor and maxDevices it still fits an int64
	maxPriority    = 9
	manyShares     = 1000 // a share of a thousandth each
)

// Config describes a pool.
type Config struct {
	// Devices are the devices of the pool; Update adds more. Their ID, Model, MemoryBytes and
	// Health count. Memory that is unknown is not given out.
	Devices []device.Device
	// MemoryFactor is how much memory is given out for each byte that a device has, 1 to 16.
	// Zero: 1, nothing is ever spilled.
	MemoryFactor float64
	// HostBytes bounds what is spilled from all devices together. Zero: MemoryFactor alone
	// bounds it.
	HostBytes int64
	// MaxShares is how many reservations one device takes. Zero: 1,000.
	MaxShares int
	// Tables are the templates of models that can only be cut in certain sizes. A request takes
	// the smallest that has room for it of such a device, and memory is given out there without
	// MemoryFactor. Devices of other models are cut as asked.
	Tables []Table
	// Spread prefers the devices with the most room. False: those with the least that
	// fits, so that whole devices stay free.
	Spread bool
}

// validate reports every fault of the configuration at once.
func (c Config) validate() error {
	var errs []error
	if c.MemoryFactor != 0 && !(c.MemoryFactor >= 1 && c.MemoryFactor <= maxFactor) {
		errs = append(errs, fmt.Errorf("pool: MemoryFactor %v: want 1 to %d", c.MemoryFactor, maxFactor))
	}
	if c.HostBytes < 0 {
		errs = append(errs, fmt.Errorf("pool: HostBytes %d: want >= 0", c.HostBytes))
	}
	if c.MaxShares < 0 {
		errs = append(errs, fmt.Errorf("pool: MaxShares %d: want >= 0", c.MaxShares))
	}
	return errors.Join(append(errs, validateTables(c.Tables), c.validateDevices(c.Devices))...)
}

func (c Config) validateDevices(list []device.Device) error {
	var errs []error
	seen := make(map[string]bool, len(list))
	for i, d := range list {
		if d.ID == "" || seen[d.ID] {
			errs = append(errs, fmt.Errorf("pool: device %d: ID %q: want a name of its own", i, d.ID))
		}
		seen[d.ID] = true
		if d.MemoryBytes.Known && (d.MemoryBytes.Value < 0 || d.MemoryBytes.Value > maxMemoryBytes) {
			errs = append(errs, fmt.Errorf("pool: device %q: MemoryBytes %d: want 0 to %d", d.ID, d.MemoryBytes.Value, int64(maxMemoryBytes)))
		}
		_, err := c.tableOf(d)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Request says what is wanted of how many devices.
type Request struct {
	// Devices is on how many distinct devices. Zero: 1.
	Devices int
	// Milli is the computing time of each, 0 to 1,000.
	Milli int64
	// Bytes is the memory of each.
	Bytes int64
	// Priority decides what is spilled first, 0 (first) to 9.
	Priority int
	// Among are the IDs of the devices that may be chosen. Empty: all.
	Among []string
}

// validate reports every fault of the request at once.
func (r Request) validate() error {
	var errs []error
	if r.Devices < 0 || r.Devices > maxDevices {
		errs = append(errs, fmt.Errorf("pool: Devices %d: want 0 to %d", r.Devices, maxDevices))
	}
	if r.Milli < 0 || r.Milli > WholeMilli {
		errs = append(errs, fmt.Errorf("pool: Milli %d: want 0 to %d; more than one device is Devices", r.Milli, WholeMilli))
	}
	if r.Bytes < 0 || r.Bytes > maxMemoryBytes*maxFactor {
		errs = append(errs, fmt.Errorf("pool: Bytes %d: want 0 to %d", r.Bytes, int64(maxMemoryBytes*maxFactor)))
	}
	if r.Milli == 0 && r.Bytes == 0 {
		errs = append(errs, errors.New("pool: Milli and Bytes are 0: want one of them above"))
	}
	if r.Priority < 0 || r.Priority > maxPriority {
		errs = append(errs, fmt.Errorf("pool: Priority %d: want 0 to %d", r.Priority, maxPriority))
	}
	return errors.Join(errs...)
}

// Share returns a number of devices as Request has it: 0.5 is 500 thousandths of one
// device, 4 is four whole ones. It fails for what is neither a whole number nor a fraction
// from 0.001 to 1, and for NaN, infinities, negative numbers and zero. A fraction is
// rounded to thousandths.
func Share(count float64) (devices int, milli int64, err error) {
	switch {
	case count == math.Trunc(count) && count >= 1 && count <= maxDevices:
		return int(count), WholeMilli, nil
	case count > 0 && count < 1:
		if milli = int64(math.Round(count * WholeMilli)); milli > 0 {
			return 1, milli, nil
		}
	}
	return 0, 0, fmt.Errorf("pool: %v devices: want a fraction from 0.001 to 1 or a whole number to %d", count, maxDevices)
}
