package topology

import (
	"errors"
	"fmt"
	"slices"
)

// MaxDevices is the largest number of devices of one graph, network cards included.
const MaxDevices = 256

// Unknown is the value of a number that the source of a graph does not give.
const Unknown = -1

// Device is a device of a node.
type Device struct {
	// Name is unique within the graph, for example "GPU0".
	Name string
	// NIC marks a network card, which Choose never takes.
	NIC bool
	// NUMA is the NUMA node beside the device, or Unknown.
	NUMA int
	// CPUs are the processors beside the device as the source writes them, for example
	// "0-23"; empty if it does not.
	CPUs string
}

// Graph holds the devices of one node and the link between any two of them.
type Graph struct {
	devices []Device
	links   []Link  // row by row
	scores  []int32 // of the links
}

// NewGraph returns the graph of the devices. link says how two devices, given by index, are
// connected. It is asked in both directions, and the weaker of two answers that differ is
// taken, so that a link which one end does not see counts for nothing. Errors wrap
// ErrInvalid.
func NewGraph(devices []Device, link func(i, j int) Link) (*Graph, error) {
	if err := checkDevices(devices); err != nil {
		return nil, err
	}
	n := len(devices)
	g := &Graph{devices: slices.Clone(devices), links: make([]Link, n*n), scores: make([]int32, n*n)}
	var errs []error
	for i := range n {
		g.links[i*n+i] = NewLink(KindSame, 0)
		for j := range i {
			l := weaker(link(j, i), link(i, j))
			if l.Lanes < 0 || l.Lanes > MaxLanes || !(l.BytesPerSecond >= 0) || l.Cost < 0 || l.Cost > Down {
				errs = append(errs, fmt.Errorf("%w: link of %.64q and %.64q has %d lanes (0 to %d), %g bytes/s (0 or more), cost %d (0 to %d)",
					ErrInvalid, devices[j].Name, devices[i].Name, l.Lanes, MaxLanes, l.BytesPerSecond, l.Cost, Down))
				continue
			}
			g.links[i*n+j], g.links[j*n+i] = l, l
			g.scores[i*n+j], g.scores[j*n+i] = int32(l.Score()), int32(l.Score())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return g, nil
}

func checkDevices(devices []Device) error {
	if len(devices) > MaxDevices {
		return fmt.Errorf("%w: %d devices, limit %d", ErrInvalid, len(devices), MaxDevices)
	}
	var errs []error
	seen := make(map[string]bool, len(devices))
	for i, d := range devices {
		switch {
		case d.Name == "":
			errs = append(errs, fmt.Errorf("%w: device %d has no name", ErrInvalid, i))
		case seen[d.Name]:
			errs = append(errs, fmt.Errorf("%w: device %.64q is listed twice", ErrInvalid, d.Name))
		}
		seen[d.Name] = true
	}
	return errors.Join(errs...)
}

// Devices returns the devices in the order of their indices. The slice is the caller's.
func (g *Graph) Devices() []Device { return slices.Clone(g.devices) }

// Accelerators returns the indices of the devices that are not network cards.
func (g *Graph) Accelerators() []int {
	var list []int
	for i, d := range g.devices {
		if !d.NIC {
			list = append(list, i)
		}
	}
	return list
}

// Link returns how devices i and j are connected; of an index that does not exist, a
// link of KindUnknown.
func (g *Graph) Link(i, j int) Link {
	n := len(g.devices)
	if i < 0 || j < 0 || i >= n || j >= n {
		return Link{}
	}
	return g.links[i*n+j]
}

// Score returns the sum of the scores of all pairs of the set: how well it is connected.
// Every index must exist.
func (g *Graph) Score(set []int) int {
	sum := 0
	for at, i := range set {
		for _, j := range set[:at] {
			sum += int(g.scores[i*len(g.devices)+j])
		}
	}
	return sum
}

// NearestNIC returns the index of the network card with the best link to device i, the
// first of equal ones, and false if there is none.
func (g *Graph) NearestNIC(i int) (int, bool) {
	best, found := 0, false
	for j, d := range g.devices {
		if d.NIC && j != i && (!found || g.Link(i, j).Score() > g.Link(i, best).Score()) {
			best, found = j, true
		}
	}
	return best, found
}
