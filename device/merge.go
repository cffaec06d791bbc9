package device

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/elasticps/elasticps/topology"
)

// maxGone bounds how many devices are remembered after they have gone. Those that have
// been gone longest are forgotten first.
const maxGone = 256

// maxMemoryBytes is more memory than any device has: a larger figure is a fault of its
// source.
const maxMemoryBytes = 1 << 50

// record is a device of the inventory and who reports it.
type record struct {
	device Device
	listed []bool // by provider: listed it when it last answered
	seen   uint64 // refresh in which somebody last listed it
}

// merge returns what is known after a round of answers, one of each provider. It does
// not change what was known before.
func merge(known []record, answers []answer, round uint64) []record {
	next := make([]record, 0, len(known))
	for _, r := range known {
		r.listed = slices.Clone(r.listed)
		r.device = r.device.lasting()
		next = append(next, r)
	}
	for k, a := range answers {
		if a.err != nil {
			continue
		}
		for i := range next {
			next[i].listed[k] = false
		}
		places := make([]int, len(a.devices))
		names := make(map[string]string, len(a.devices)) // what this source calls a device → its ID
		for i, d := range a.devices {
			d.bound()
			if places[i] = find(next, d); places[i] < 0 {
				next = append(next, record{device: d, listed: make([]bool, len(answers))})
				places[i] = len(next) - 1
			}
			names[d.ID] = next[places[i]].device.ID
		}
		for i, d := range a.devices {
			d.bound()
			d.Links = renamed(d.Links, names)
			r := &next[places[i]]
			r.device.merge(d, r.seen == round)
			r.listed[k], r.seen = true, round
		}
	}
	for i := range next {
		next[i].explainAbsence(answers, round)
	}
	return slices.DeleteFunc(sortRecords(next), tooLongGone(next))
}

// renamed returns links with the peers' IDs instead of what a source calls them.
func renamed(links []Link, names map[string]string) []Link {
	links = slices.Clone(links)
	for i, l := range links {
		links[i].Peer = cmp.Or(names[l.Peer], l.Peer)
		links[i].Lanes = max(0, min(l.Lanes, topology.MaxLanes))
		links[i].BytesPerSecond.bound(0, math.MaxFloat64)
	}
	return links
}

// explainAbsence says what has become of a device that nobody has listed in this round:
// the provider that lists it does not answer, or it is gone.
func (r *record) explainAbsence(answers []answer, round uint64) {
	if r.seen == round {
		return
	}
	for k, listed := range r.listed {
		if listed {
			r.device.Health, r.device.Fault = HealthUnknown, answers[k].err.Error()
			return
		}
	}
	r.device.Health, r.device.Fault = Gone, "not listed any more"
}

// find returns the index of the record of the same device, or -1. The bus address
// decides only where it is unique, since the chips of one card share it, and the index
// only for a device that cannot be reached and of which nothing else is known.
func find(records []record, d Device) int {
	at, found := -1, 0
	for i, r := range records {
		switch {
		case r.device.Vendor != d.Vendor:
		case r.device.ID == d.ID, d.UUID != "" && r.device.UUID == d.UUID:
			return i
		case d.UUID != "" && r.device.UUID != "":
		case d.BusID != "" && r.device.BusID == d.BusID, d.Health == Gone && d.BusID == "" && r.device.Index == d.Index:
			at = i
			found++
		}
	}
	if found != 1 {
		return -1
	}
	return at
}

// sortRecords orders records by their first provider, vendor and index.
func sortRecords(records []record) []record {
	slices.SortStableFunc(records, func(a, b record) int {
		return cmp.Or(
			cmp.Compare(a.first(), b.first()),
			cmp.Compare(a.device.Vendor, b.device.Vendor),
			cmp.Compare(a.device.Index, b.device.Index),
			cmp.Compare(a.device.ID, b.device.ID),
		)
	})
	return records
}

// first returns the first provider that lists the device; those that nobody lists stand
// last.
func (r record) first() int {
	if k := slices.Index(r.listed, true); k >= 0 {
		return k
	}
	return len(r.listed)
}

// tooLongGone returns the test for records that have been gone for longer than the
// maxGone that are remembered.
func tooLongGone(records []record) func(record) bool {
	var rounds []uint64
	for _, r := range records {
		if r.device.Health == Gone {
			rounds = append(rounds, r.seen)
		}
	}
	over := len(rounds) - maxGone
	if over <= 0 {
		return func(record) bool { return false }
	}
	slices.Sort(rounds)
	return func(r record) bool { return r.device.Health == Gone && r.seen <= rounds[over-1] }
}

func devices(records []record) []Device {
	list := make([]Device, len(records))
	for i, r := range records {
		list[i] = r.device
		list[i].Links = slices.Clone(r.device.Links)
	}
	return list
}

// lasting returns what stays true of a device while nobody reports it.
func (d Device) lasting() Device {
	d.UsedBytes, d.Utilization = Figure[int64]{}, Figure[float64]{}
	d.Celsius, d.Watts = Figure[float64]{}, Figure[float64]{}
	d.Health, d.Fault = HealthUnknown, ""
	return d
}

// merge takes what a source says: all of it when it is the first in this round, else
// what the sources before it did not know.
func (d *Device) merge(s Device, again bool) {
	if !again {
		former := *d
		*d = s
		d.ID = former.ID // the device keeps the name under which it became known
		s = former
	}
	if d.Index < 0 {
		d.Index = s.Index
	}
	d.Model, d.UUID, d.BusID = cmp.Or(d.Model, s.Model), cmp.Or(d.UUID, s.UUID), cmp.Or(d.BusID, s.BusID)
	d.NUMANode.fill(s.NUMANode)
	d.MemoryBytes.fill(s.MemoryBytes)
	d.UsedBytes.fill(s.UsedBytes)
	d.Utilization.fill(s.Utilization)
	d.Celsius.fill(s.Celsius)
	d.Watts.fill(s.Watts)
	d.LinkBytesPerSecond.fill(s.LinkBytesPerSecond)
	if len(d.Links) == 0 {
		d.Links = slices.Clone(s.Links)
	}
	if s.Health > d.Health {
		d.Health, d.Fault = s.Health, s.Fault
	}
}

// bound forgets figures that no device can have, whatever source they come from, and
// names a device that has no name.
func (d *Device) bound() {
	if d.ID == "" {
		d.ID = fmt.Sprintf("%s-%d", d.Vendor, d.Index)
	}
	d.NUMANode.bound(0, 1<<16)
	d.MemoryBytes.bound(0, maxMemoryBytes)
	d.UsedBytes.bound(0, d.MemoryBytes.Or(maxMemoryBytes))
	d.Utilization.bound(0, 1)
	d.Celsius.bound(-100, 1000)
	d.Watts.bound(0, 1e5)
	d.LinkBytesPerSecond.bound(0, math.MaxFloat64)
}
