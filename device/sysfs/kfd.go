package sysfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/topology"
)

const kfd = "sys/class/kfd/kfd/topology/nodes"

// Types of links of the compute driver.
const (
	kfdPCIe = 2
	kfdXGMI = 11
)

// kfdNode is a device of the compute driver.
type kfdNode struct {
	number int
	name   string
	busID  string
	links  []kfdLink
}

// kfdLink is a link to another node.
type kfdLink struct {
	kind           topology.Kind
	to             int
	bytesPerSecond device.Figure[float64]
}

// kfdNodes returns the nodes of the compute driver that are devices and not processors, in
// its order. There are none where the driver is not loaded.
func (t tree) kfdNodes() ([]kfdNode, error) {
	entries, err := t.numbered(kfd, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	var nodes []kfdNode
	for _, e := range entries {
		folder := path.Join(kfd, e.name)
		id, err := t.number(folder, "gpu_id")
		if err != nil {
			return nil, err
		}
		if id.Value == 0 {
			continue // a processor, or a device that this process may not see
		}
		n, err := t.kfdNode(folder)
		if err != nil {
			return nil, err
		}
		n.number = e.number
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func (t tree) kfdNode(folder string) (kfdNode, error) {
	var n kfdNode
	n.name, _ = t.read(maxFileBytes, folder, "name")
	p, err := t.properties([]string{"location_id", "domain"}, folder, "properties")
	if err != nil {
		return n, err
	}
	if at, ok := p["location_id"]; ok { // bus, device and function, in 8, 5 and 3 bits
		n.busID = fmt.Sprintf("%04x:%02x:%02x.%x", p["domain"], at>>8&0xff, at>>3&0x1f, at&7)
	}
	for _, group := range []string{"io_links", "p2p_links"} {
		entries, err := t.numbered(path.Join(folder, group), "")
		if err != nil {
			continue // kernels before 5.20 have no p2p_links
		}
		for _, e := range entries {
			l, err := t.properties([]string{"type", "node_to", "max_bandwidth"}, folder, group, e.name, "properties")
			if err != nil {
				return n, err
			}
			link := kfdLink{to: int(min(l["node_to"], 1<<30))}
			switch l["type"] {
			case kfdXGMI:
				link.kind = topology.KindXGMI
			case kfdPCIe:
				link.kind = topology.KindHostBridge // or nearer: the driver does not say
			default:
				continue
			}
			if mb := l["max_bandwidth"]; mb > 0 {
				link.bytesPerSecond = device.Known(float64(mb) * 1e6)
			}
			n.links = append(n.links, link)
		}
	}
	return n, nil
}

// arrange numbers devices in the order of the compute driver and gives them its links.
func arrange(list []device.Device, nodes []kfdNode) []device.Device {
	ids := make(map[int]device.Device) // by node
	for i := range list {
		at := slices.IndexFunc(nodes, func(n kfdNode) bool { return n.busID != "" && n.busID == list[i].BusID })
		if at < 0 {
			list[i].Index = len(nodes) + i
			continue
		}
		list[i].Index = at
		list[i].Model = cmp.Or(list[i].Model, nodes[at].name)
		ids[nodes[at].number] = list[i]
	}
	slices.SortStableFunc(list, func(a, b device.Device) int { return cmp.Compare(a.Index, b.Index) })
	for i := range list {
		if list[i].Index < len(nodes) {
			list[i].Links = linksOf(list[i], nodes[list[i].Index], ids)
		}
	}
	return list
}

// linksOf returns the links of a device to others, those of a kind to one peer together. A way
// over PCIe between two nodes of the host's memory crosses their interconnect.
func linksOf(d device.Device, n kfdNode, ids map[int]device.Device) []device.Link {
	var links []device.Link
	for _, l := range n.links {
		peer, ok := ids[l.to]
		if !ok {
			continue // a processor
		}
		if !l.kind.Direct() && peer.NUMANode.Known && d.NUMANode.Known && peer.NUMANode != d.NUMANode {
			l.kind = topology.KindNode
		}
		at := slices.IndexFunc(links, func(k device.Link) bool { return k.Peer == peer.ID && k.Kind == l.kind })
		switch {
		case at < 0:
			link := device.Link{Kind: l.kind, Peer: peer.ID, BytesPerSecond: l.bytesPerSecond}
			if l.kind.Direct() {
				link.Lanes = 1
			}
			links = append(links, link)
			continue
		case !l.kind.Direct():
			continue // the same way, told twice
		}
		links[at].Lanes++
		links[at].BytesPerSecond.Value += l.bytesPerSecond.Value
		links[at].BytesPerSecond.Known = links[at].BytesPerSecond.Known && l.bytesPerSecond.Known
	}
	return links
}
