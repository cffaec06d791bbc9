// Package topology says how accelerators are connected and chooses those that work well
// together: within a node by its links, over a cluster by its failure domains.
//
// # Terms
//
// A device is an accelerator, or a network card, of one node. A link joins two devices;
// its kind says what the nearest way between them crosses, on one scale from the same
// device over NVLink, HCCS, MTLink or XGMI, PCIe switches, sockets, node, rack and optical
// plane to cluster and region. A graph holds the links of one node. A tree holds the
// failure domains of a cluster, down to nodes, with the number of free devices in each. A
// gang is a number of tasks with the same number of devices each that start together or
// not at all. The cost of a link is the share of its bandwidth that is lost.
//
// # Use
//
//	graph, err := topology.ParseMatrix(output) // of "nvidia-smi topo -m"
//	four, err := graph.Choose([]int{0, 1, 2, 3, 4, 5, 6, 7}, 4)
//
//	tree, err := topology.NewTree(
//		topology.Level{Kind: topology.KindCluster}, topology.Level{Kind: topology.KindRack})
//	err = tree.Add(topology.Node{Name: "n1", Path: []string{"r1"}, Devices: 8})
//	places, err := tree.Place(topology.Gang{Tasks: 16, Devices: 8, Required: topology.KindRack})
//	for _, p := range places {
//		err = tree.Take(p.Node, p.Tasks*8)
//	}
//	members := []topology.Member{{Node: "n1", Device: 0, Graph: graph}, {Node: "n1", Device: 3, Graph: graph}}
//	groups, err := tree.Groups(members, topology.Parallel{Tensor: 2})
//
// # Choices
//
// Choose divides all free devices into sets of the wanted size so that the sum of the pair
// scores within the sets is the largest, and returns the best of these sets: it leaves
// others that are well connected. Place keeps a gang in the fewest domains and fills the
// fullest first. Groups divides a job so that tensor-parallel groups have the nearest devices.
// All are deterministic: ties go to the lower index, and to the domain that comes first by name.
//
// # Concurrency
//
// A Graph does not change and may be used by any number of goroutines. A Tree belongs to
// one. Nothing blocks.
//
// # Errors
//
// ErrInvalid is wrapped when an argument is wrong, and ErrNoRoom when too little is free;
// the text names the thing and the bound. Texts that cannot be read give a *ParseError
// with line and field. A word that a parser does not know is a link of KindUnknown.
//
// # Units and limits
//
// Bandwidth is in bytes per second in one direction. A graph has at most MaxDevices
// devices, a node at most MaxNodeDevices; a text is at most MaxTextBytes long. Choose is
// exact for 16 devices and fewer, within a bounded number of steps, and a local search
// beyond; so it takes less than a millisecond for 16.
//
// # References
//
// The score of a pair and the aim of Choose are those of NVIDIA/go-gpuallocator
// (best-effort policy). Where Rate has its figures from stands beside its table. Divisions into
// tensor, data and pipeline parallel groups: Narayanan et al., Efficient Large-Scale
// Language Model Training on GPU Clusters Using Megatron-LM, SC 2021, section 3.
package topology
