package elastic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/topology"
)

// Host is what a scheduler needs to know of one kind of devices of a host.
type Host struct {
	// Node has the devices, and what was known of the host before.
	Node sched.Node
	// Devices are those of the node: number i of a sched.DeviceSet is Devices[i].
	Devices []device.Device
	// Graph says how they are connected, for sched.ByTopology.
	Graph *topology.Graph
}

// HostsOf turns the devices of a host, as a device.Inventory lists them, into nodes of a
// scheduler: one for each kind of device, as a sched.Node has one, in the order of the list.
// Devices that have failed or gone, and processors, are left out. node is what is known of the
// host itself, its name, processor time and memory among it; when there are several kinds each
// gets a part of these in proportion to its devices, and its name followed by "/" and the model.
// Without any device the result is the node alone. The error names what is out of bounds.
func HostsOf(node sched.Node, list []device.Device) ([]Host, error) {
	type kind struct{ vendor, model string }
	var kinds []kind
	groups := make(map[kind][]device.Device)
	all := 0
	for _, d := range list {
		if !d.Health.Usable() || d.Vendor == device.CPU {
			continue
		}
		k := kind{string(d.Vendor), cmp.Or(d.Model, string(d.Vendor))}
		if groups[k] == nil {
			kinds = append(kinds, k)
		}
		groups[k] = append(groups[k], d)
		all++
	}
	if len(kinds) == 0 {
		g, err := device.Graph(nil)
		return []Host{{Node: node, Graph: g}}, err
	}
	hosts := make([]Host, 0, len(kinds))
	left, rest := node, all
	for _, k := range kinds {
		h := Host{Node: node, Devices: groups[k]}
		h.Node.Devices, h.Node.Model, h.Node.Vendor = len(h.Devices), k.model, k.vendor
		if len(kinds) > 1 {
			h.Node.Name = node.Name + "/" + k.model
			h.Node.CPU = left.CPU * sched.Milli(len(h.Devices)) / sched.Milli(rest)
			h.Node.MemoryBytes = left.MemoryBytes / int64(rest) * int64(len(h.Devices))
			if len(h.Devices) == rest {
				h.Node.CPU, h.Node.MemoryBytes = left.CPU, left.MemoryBytes
			}
			h.Node.Domains = slices.Clone(node.Domains)
			left.CPU, left.MemoryBytes, rest = left.CPU-h.Node.CPU, left.MemoryBytes-h.Node.MemoryBytes, rest-len(h.Devices)
			h.Node.Custom = nil
		}
		if h.Node.Devices > sched.MaxDevices {
			return nil, fmt.Errorf("elastic: host %q: %d devices of model %q: want at most %d", node.Name, h.Node.Devices, k.model, sched.MaxDevices)
		}
		var err error
		if h.Graph, err = device.Graph(h.Devices); err != nil {
			return nil, fmt.Errorf("elastic: host %q: %w", node.Name, err)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}
