package device

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/topology"
)

// Vendor is a maker of devices, in lower case. A source may report others than those
// below.
type Vendor string

// The vendors that this package knows rules of, and the two kinds that are none.
const (
	NVIDIA       Vendor = "nvidia"
	Ascend       Vendor = "ascend"
	MooreThreads Vendor = "moorethreads"
	AMD          Vendor = "amd"
	CPU          Vendor = "cpu"
	Simulated    Vendor = "simulated" // the link of a SimLink; the devices of device/sim bear the vendor they play
)

// Health says what a device can be used for.
type Health int

// The states of health, in the order of severity: of two sources the worse one counts.
const (
	HealthUnknown Health = iota // nobody says; the zero value
	Healthy
	Degraded // works, with corrected errors or a link down
	Failed   // there, and not to be used
	Gone     // was there, and is not any more
)

var healthNames = [...]string{"unknown", "healthy", "degraded", "failed", "gone"}

// String returns the state in lower case.
func (h Health) String() string {
	if h < 0 || int(h) >= len(healthNames) {
		return fmt.Sprintf("health(%d)", int(h))
	}
	return healthNames[h]
}

// Usable reports whether work may be put on the device. Unknown health is no reason
// against it: most sources do not report health at all.
func (h Health) Usable() bool { return h != Failed && h != Gone }

// Link is a way from a device to another, or to a switch of direct links. There may be
// two to one peer: a direct one, and the way over PCIe and sockets beneath it.
type Link struct {
	// Kind is the technology of a direct link, or what the way crosses.
	Kind topology.Kind
	// Peer is the ID of the device at the other end, empty for a switch or when the
	// source does not say.
	Peer string
	// Lanes is how many parallel links are up, for direct kinds.
	Lanes int
	// BytesPerSecond is the bandwidth of all lanes together in one direction, as reported.
	BytesPerSecond Figure[float64]
}

// Device is what is known about one accelerator, or about the processors of a host, at
// one moment. It is a value; Links belongs to whoever received it.
type Device struct {
	// ID is unique within the host and stays the same as long as the device does,
	// whatever else is plugged in.
	ID string
	// Vendor is the maker.
	Vendor Vendor
	// Index is the position in the vendor's own order, from 0: the one that its
	// visibility variables count by. -1 if the source does not say.
	Index int
	// Model is the maker's name of the product, empty if the source does not say.
	Model string
	// UUID is the vendor's identity of the device, empty if the source does not say.
	UUID string
	// BusID is the PCI address in the form 0000:c1:00.0, empty if the source does not say.
	// The chips of one card may share it.
	BusID string
	// NUMANode is the node of the host's memory that the device is close to.
	NUMANode Figure[int]

	// MemoryBytes is the memory of the device.
	MemoryBytes Figure[int64]
	// UsedBytes is how much of it is in use, by anybody.
	UsedBytes Figure[int64]
	// Utilization is the fraction of time in which the device was busy, 0 to 1, over the
	// window of the source (about a second for all vendors).
	Utilization Figure[float64]
	// Celsius is the temperature.
	Celsius Figure[float64]
	// Watts is the power drawn.
	Watts Figure[float64]

	// Health says what the device can be used for.
	Health Health
	// Fault says what is wrong with it, empty if nothing is known to be.
	Fault string

	// LinkBytesPerSecond is the bandwidth of the device's link to the host in one
	// direction; 0 means without limit.
	LinkBytesPerSecond Figure[float64]
	// Links are the ways to other devices, see Graph.
	Links []Link
}

// Provider lists devices of one kind on one host. Both methods may be called from any
// goroutine.
type Provider interface {
	// Source names where the devices come from, for messages: "nvidia-smi".
	Source() string
	// Devices returns what is known now, in the vendor's order. What the source does not
	// tell is unknown; an error means that it could not be read or understood as a whole.
	// The slice and the links in it belong to the caller. It may block until ctx ends,
	// and a driver that hangs may keep it longer: Inventory gives up then.
	Devices(ctx context.Context) ([]Device, error)
}

// Usage is the load of a device over the last Window.
type Usage struct {
	// Window is the span of time that the figures describe.
	Window time.Duration
	// Busy is the fraction of the window in which the device worked, 0 to 1.
	Busy Figure[float64]
	// BytesPerSecond is the mean traffic of the window in both directions.
	BytesPerSecond Figure[float64]
	// TotalBytes is the traffic since the device was opened.
	TotalBytes Figure[int64]
}
