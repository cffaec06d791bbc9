package device

import (
	"github.com/elasticps/elasticps/topology"
)

// Graph returns how devices of one host are connected, by their Links; device i of the list is
// device i of the graph, named by its ID. Between two devices counts their fastest direct link, by
// themselves or over switches, where the device with fewer lanes decides; beneath it, and where
// there is none, the way over PCIe that the source tells, or else whether they are near the same
// memory (NUMANode). A bandwidth that is not reported is the usual one of its kind. The error
// wraps topology.ErrInvalid: too many devices, or an ID that is empty or not unique.
func Graph(list []Device) (*topology.Graph, error) {
	devices := make([]topology.Device, len(list))
	for i, d := range list {
		devices[i] = topology.Device{Name: d.ID, NUMA: d.NUMANode.Or(topology.Unknown)}
	}
	return topology.NewGraph(devices, func(i, j int) topology.Link { return list[i].to(list[j]) })
}

// to returns the link to another device, as this one sees it.
func (d Device) to(other Device) topology.Link {
	path := d.path(other)
	best := topology.NewLink(path, 0)
	for _, l := range d.Links {
		if l.Peer == other.ID && l.Kind == path && l.BytesPerSecond.Or(0) > 0 {
			best.BytesPerSecond = l.BytesPerSecond.Value
		}
	}
	for _, l := range d.Links {
		if !l.Kind.Direct() || l.Lanes < 1 {
			continue
		}
		switch l.Peer {
		case other.ID:
		case "":
			l = l.within(other)
		default:
			continue
		}
		direct := topology.NewLink(l.Kind, min(l.Lanes, topology.MaxLanes))
		direct.Path = path
		if rate := l.BytesPerSecond.Or(0); rate > 0 {
			direct.BytesPerSecond = rate
		}
		if l.Lanes > 0 && (!best.Kind.Direct() || direct.BytesPerSecond > best.BytesPerSecond) {
			best = direct
		}
	}
	return best
}

// within returns what of a link to switches the other device can take, no lanes if it has none
// to them.
func (l Link) within(other Device) Link {
	for _, o := range other.Links {
		if o.Peer != "" || o.Kind != l.Kind {
			continue
		}
		if o.Lanes < l.Lanes {
			l.BytesPerSecond.Value *= float64(o.Lanes) / float64(l.Lanes)
			l.Lanes = o.Lanes
		}
		return l
	}
	return Link{Kind: l.Kind}
}

// path returns what the way over PCIe and sockets to another device crosses, the nearest that
// is told.
func (d Device) path(other Device) topology.Kind {
	path := topology.KindUnknown
	for _, l := range d.Links {
		if l.Peer == other.ID && !l.Kind.Direct() {
			path = max(path, l.Kind)
		}
	}
	switch {
	case path != topology.KindUnknown || !d.NUMANode.Known || !other.NUMANode.Known:
	case d.NUMANode == other.NUMANode:
		path = topology.KindSocket
	default:
		path = topology.KindNode
	}
	return path
}
