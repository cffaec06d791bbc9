package device

import "time"

// Unknown is the value of a figure that a device does not report.
const Unknown = -1

// Info is what does not change about a device.
type Info struct {
	// Name is unique within the host, for example "sim-0".
	Name string
	// Vendor is the maker's name in lower case, "simulated" for a Sim.
	Vendor string
	// Model is the maker's name of the product.
	Model string
	// MemoryBytes is the memory of the device in bytes, Unknown if it does not say.
	MemoryBytes int64
	// LinkBytesPerSecond is the bandwidth of the device's link, Unknown if it
	// does not say, 0 if it has no limit.
	LinkBytesPerSecond float64
}

// Usage is the load of a device over the last Window.
type Usage struct {
	// Window is the span of time that the figures describe.
	Window time.Duration
	// Busy is the fraction of the window in which the device worked, 0 to 1, or Unknown.
	Busy float64
	// BytesPerSecond is the mean traffic of the window in both directions, or Unknown.
	BytesPerSecond float64
	// TotalBytes is the traffic since the device was opened, or Unknown.
	TotalBytes int64
}

// Device is an accelerator whose load can be read. Neither method blocks.
type Device interface {
	// Info returns what does not change about the device.
	Info() Info
	// Usage returns the load over the last window. A window that is not
	// positive means one second.
	Usage(window time.Duration) Usage
}
