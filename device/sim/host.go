package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/device"
)

// maxDevices bounds the devices of a host.
const maxDevices = 1024

// Spec describes like devices.
type Spec struct {
	// Vendor is the maker that the devices play. Required.
	Vendor device.Vendor
	// Model is the name of the product. Zero: one of the vendor's.
	Model string
	// Count is how many there are. Zero: 1.
	Count int
	// MemoryBytes is the memory of each. Zero: that of the vendor's product.
	MemoryBytes int64
}

// Config describes a host.
type Config struct {
	// Devices are the devices, in the order in which they are listed. Required: at least one.
	Devices []Spec
	// Seed decides the load.
	Seed uint64
	// MinLoad and MaxLoad bound the utilization. Zero MaxLoad: 1.
	MinLoad, MaxLoad float64
	// Step is how long the load takes from one random level to the next. Zero: 10 s.
	Step time.Duration
	// Clock returns the time since some beginning, never going back. Zero: since New.
	Clock func() time.Duration
}

// validate reports every fault of the configuration at once.
func (c Config) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("sim: "+format, args...)) }
	count := 0
	for i, s := range c.Devices {
		if s.Vendor == "" {
			fault("Devices[%d].Vendor is empty", i)
		}
		if s.Count < 0 || s.Count > maxDevices {
			fault("Devices[%d].Count %d: want 0 to %d", i, s.Count, maxDevices)
			continue
		}
		if s.MemoryBytes < 0 {
			fault("Devices[%d].MemoryBytes %d: want >= 0", i, s.MemoryBytes)
		}
		count += max(1, s.Count)
	}
	if count > maxDevices || len(c.Devices) == 0 {
		fault("%d devices: want 1 to %d", count, maxDevices)
	}
	if !(c.MinLoad >= 0 && c.MinLoad <= 1) {
		fault("MinLoad %v: want 0 to 1", c.MinLoad)
	}
	if !(c.MaxLoad >= 0 && c.MaxLoad <= 1) {
		fault("MaxLoad %v: want 0 to 1", c.MaxLoad)
	}
	if c.MaxLoad != 0 && c.MinLoad > c.MaxLoad {
		fault("MinLoad %v: want at most MaxLoad, %v", c.MinLoad, c.MaxLoad)
	}
	if c.Step < 0 {
		fault("Step %v: want >= 0", c.Step)
	}
	return errors.Join(errs...)
}

// Fault is what is wrong with a device.
type Fault int

// The faults.
const (
	None   Fault = iota // nothing; the device comes back as it was
	Vanish              // the device is not listed
	Hang                // the list is not answered
	ECC                 // uncorrected memory errors: listed as failed
)

// Host is a host with simulated devices. It starts no goroutine and needs no Close.
type Host struct {
	cfg    Config
	fixed  []device.Device // what does not change
	models []model

	mu      sync.Mutex
	faults  []Fault
	changed chan struct{} // closed and replaced when a fault changes
}

var _ device.Provider = (*Host)(nil)

// New returns a host whose devices are all well. The error names every field that is out
// of bounds.
func New(c Config) (*Host, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.MaxLoad == 0 {
		c.MaxLoad = 1
	}
	if c.Step == 0 {
		c.Step = 10 * time.Second
	}
	if c.Clock == nil {
		begin := time.Now()
		c.Clock = func() time.Duration { return time.Since(begin) }
	}
	h := &Host{cfg: c, changed: make(chan struct{})}
	next := make(map[device.Vendor]int)
	for _, s := range c.Devices {
		h.add(s, next)
	}
	h.faults = make([]Fault, len(h.fixed))
	return h, nil
}

// add plugs in the devices of a spec, whose indexes continue those of its vendor.
func (h *Host) add(s Spec, next map[device.Vendor]int) {
	m := modelOf(s.Vendor)
	if s.Model != "" {
		m.name = s.Model
	}
	if s.MemoryBytes != 0 {
		m.memoryBytes = s.MemoryBytes
	}
	first, count := next[s.Vendor], max(1, s.Count)
	next[s.Vendor] += count
	id := func(i int) string { return fmt.Sprintf("%s-%d", s.Vendor, first+i) }
	for i := range count {
		number := len(h.fixed)
		d := device.Device{
			ID: id(i), Vendor: s.Vendor, Index: first + i, Model: m.name,
			UUID:  fmt.Sprintf("GPU-%08x-%04x", uint32(h.cfg.Seed), number),
			BusID: fmt.Sprintf("%04x:%02x:00.0", number>>8, number&0xff), NUMANode: device.Known(number % 2),
			MemoryBytes: device.Known(m.memoryBytes), LinkBytesPerSecond: device.Known(32e9),
		}
		for peer := range count {
			if peer != i {
				d.Links = append(d.Links, device.Link{
					Kind: m.link, Peer: id(peer), Lanes: m.lanes,
					BytesPerSecond: device.Known(m.bytesPerSecond),
				})
			}
		}
		h.fixed, h.models = append(h.fixed, d), append(h.models, m)
	}
}

// Source returns "sim".
func (h *Host) Source() string { return "sim" }

// Inject gives a device a fault, or takes the one that it has. It fails for a name that
// the host does not have.
func (h *Host) Inject(id string, f Fault) error {
	i := slices.IndexFunc(h.fixed, func(d device.Device) bool { return d.ID == id })
	if i < 0 {
		return fmt.Errorf("sim: no device %q among %d", id, len(h.fixed))
	}
	if f < None || f > ECC {
		return fmt.Errorf("sim: %s: fault %d: want %d to %d", id, f, None, ECC)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[i] = f
	close(h.changed)
	h.changed = make(chan struct{})
	return nil
}

// Devices lists the devices that have not vanished. It blocks while one hangs.
func (h *Host) Devices(ctx context.Context) ([]device.Device, error) {
	for {
		h.mu.Lock()
		hangs, changed := slices.Index(h.faults, Hang), h.changed
		faults := slices.Clone(h.faults)
		h.mu.Unlock()
		if hangs < 0 {
			return h.list(faults), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("sim: %s hangs: %w", h.fixed[hangs].ID, ctx.Err())
		}
	}
}

func (h *Host) list(faults []Fault) []device.Device {
	at := h.cfg.Clock()
	list := make([]device.Device, 0, len(h.fixed))
	for i, d := range h.fixed {
		d.Links = slices.Clone(d.Links)
		switch faults[i] {
		case Vanish:
			continue
		case ECC:
			d.Health, d.Fault = device.Failed, "uncorrected memory errors"
			d.Utilization, d.UsedBytes = device.Known(0.0), device.Known(int64(0))
			list = append(list, d)
			continue
		}
		m := h.models[i]
		u := load(h.cfg.Seed, uint64(i), at, h.cfg.Step, h.cfg.MinLoad, h.cfg.MaxLoad)
		d.Health = device.Healthy
		d.Utilization = device.Known(u)
		d.UsedBytes = device.Known(int64(u * float64(m.memoryBytes)))
		d.Celsius = device.Known(math.Round(30 + 50*u))
		d.Watts = device.Known(math.Round(m.idle + u*(m.full-m.idle)))
		list = append(list, d)
	}
	return list
}
