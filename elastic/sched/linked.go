package sched

import "github.com/elasticps/elasticps/topology"

// ByTopology returns a Config.PickDevices that follows the links of the devices of each node,
// by its name: those that are well connected are taken together, and what is left stays
// so ([topology.Graph.Choose]). Device i of a node is accelerator i of its graph, in the order
// of Graph.Accelerators. Nodes without a graph, and devices that it does not have, are
// left to the default. The graphs are only read.
func ByTopology(graphs map[string]*topology.Graph) func(node string, free DeviceSet, k int) DeviceSet {
	return func(node string, free DeviceSet, k int) (set DeviceSet) {
		g := graphs[node]
		if g == nil {
			return 0
		}
		accelerators := g.Accelerators()
		var indices []int
		numbers := make(map[int]int, len(accelerators)) // by index in the graph
		for _, i := range free.List() {
			if i >= len(accelerators) {
				return 0
			}
			indices = append(indices, accelerators[i])
			numbers[accelerators[i]] = i
		}
		chosen, err := g.Choose(indices, k)
		if err != nil {
			return 0 // fewer than k are free, which the default finds as well
		}
		for _, i := range chosen {
			set |= 1 << numbers[i]
		}
		return set
	}
}
