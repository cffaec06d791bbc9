package sched

import (
	"errors"
	"fmt"
	"math/bits"
)

// NodeLevel is the level below all that Config.Levels names: a node by itself.
const NodeLevel = "node"

// Node is what a cluster knows of one host.
type Node struct {
	// Name is unique in a cluster. Among equals, the node whose Domains and then whose
	// name sort first is taken.
	Name string
	// CPU is all of its processor time, in thousandths of a core.
	CPU Milli
	// MemoryBytes is its memory.
	MemoryBytes int64
	// Devices is the number of its accelerators, all of one Model and Vendor.
	Devices       int
	Model, Vendor string
	// Custom resources by name.
	Custom map[string]Milli
	// Domains are the failure domains that it is in, one for each of Config.Levels,
	// outermost first. Two racks of one name in different blocks are different racks.
	Domains []string
}

// check reports every fault at once, without the name of the package.
func (n Node) check(levels []string) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n.Name == "" {
		fault("Name is empty")
	}
	if n.CPU < 0 || n.CPU > MaxAmount {
		fault("CPU %d: want 0 to %d", n.CPU, int64(MaxAmount))
	}
	if n.MemoryBytes < 0 || n.MemoryBytes > MaxAmount {
		fault("MemoryBytes %d: want 0 to %d", n.MemoryBytes, int64(MaxAmount))
	}
	if n.Devices < 0 || n.Devices > MaxDevices {
		fault("Devices %d: want 0 to %d", n.Devices, MaxDevices)
	}
	if len(n.Domains) != len(levels) {
		fault("Domains %q: want one for each of the levels %q", n.Domains, levels)
	}
	for _, name := range sortedKeys(n.Custom) {
		if v := n.Custom[name]; name == "" || v < 0 || v > MaxAmount {
			fault("Custom[%q] %d: want a name and 0 to %d", name, v, int64(MaxAmount))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("node %q: %w", n.Name, err)
	}
	return nil
}

// DeviceSet is a set of devices of one node; bit i stands for device i.
type DeviceSet uint32

// Has reports whether device i is in the set.
func (d DeviceSet) Has(i int) bool { return d>>i&1 == 1 }

// Len returns the number of devices in the set.
func (d DeviceSet) Len() int { return bits.OnesCount32(uint32(d)) }

// List returns the devices in ascending order, in a new slice.
func (d DeviceSet) List() []int {
	list := make([]int, 0, d.Len())
	for i := range MaxDevices {
		if d.Has(i) {
			list = append(list, i)
		}
	}
	return list
}

// shape is what a score may see of a node: all that decides where a task goes, but for
// memory and custom resources, which only decide whether it can.
type shape struct {
	cpu   Milli // left
	idle  Milli // left of all devices together
	free  [MaxDevices]int16
	count int8  // of devices
	model int8  // index in Cluster.models
	cores Milli // of the whole node
}

// fitting are the devices that have a share left.
func (s *shape) fitting(share Milli) DeviceSet {
	var set DeviceSet
	for i, f := range s.free[:s.count] {
		if Milli(f) >= share {
			set |= 1 << i
		}
	}
	return set
}

// tightest returns the k fitting devices with the least left, the first of equals.
func (s *shape) tightest(share Milli, k int) DeviceSet {
	fitting, chosen := s.fitting(share), DeviceSet(0)
	for range min(k, fitting.Len()) {
		best := -1
		for i, f := range s.free[:s.count] {
			if fitting.Has(i) && !chosen.Has(i) && (best < 0 || f < s.free[best]) {
				best = i
			}
		}
		chosen |= 1 << best
	}
	return chosen
}

// wholes is the number of devices that nobody uses.
func (s *shape) wholes() int { return s.fitting(Whole).Len() }

// take subtracts, or gives back with a negative sign.
func (s *shape) take(cpu Milli, devices DeviceSet, share Milli) {
	s.cpu -= cpu
	for rest := devices; rest != 0; rest &= rest - 1 {
		s.free[bits.TrailingZeros32(uint32(rest))] -= int16(share)
		s.idle -= share
	}
}

// host is a node and what is left of it.
type host struct {
	Node
	shape
	memory   int64   // left
	custom   []Milli // left, by index in Cluster.customs
	domains  []int32 // by level, index in the cluster's table of that level
	cordoned bool
	tasks    []int32 // records of tasks and bundles here, in no order
	fragment int64   // of the shape, if known
	known    bool
	work     uint64 // number of what was last placed here, unlike that of any other node
	touched  int    // place of the last change among Cluster.changes
}

func newHost(n Node) host {
	h := host{Node: n, memory: n.MemoryBytes}
	h.shape = shape{cpu: n.CPU, cores: n.CPU, count: int8(n.Devices), idle: Milli(n.Devices) * Whole}
	for i := range n.Devices {
		h.free[i] = int16(Whole)
	}
	return h
}

// refuses says whether the node has no room for a class, memory aside.
func (h *host) refuses(cl *class) bool {
	switch {
	case h.cordoned || cl.need.unknown != "" || h.shape.cpu < cl.need.cpu:
		return true
	case cl.need.devices > 0 && (h.count == 0 || cl.allowed>>h.model&1 == 0):
		return true
	case cl.need.devices > 0 && h.fitting(cl.need.share).Len() < cl.need.devices:
		return true
	}
	for _, x := range cl.need.custom {
		if h.custom[x.index] < x.amount {
			return true
		}
	}
	return false
}
