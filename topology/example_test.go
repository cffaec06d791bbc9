package topology_test

import (
	"fmt"
	"strings"

	"github.com/elasticps/elasticps/topology"
)

func ExampleGraph_Choose() {
	graph, err := topology.ParseMatrix(strings.NewReader(`
        GPU0  GPU1  GPU2  GPU3  CPU Affinity
GPU0    X     NV4   SYS   SYS   0-15
GPU1    NV4   X     SYS   SYS   0-15
GPU2    SYS   SYS   X     PIX   16-31
GPU3    SYS   SYS   PIX   X     16-31
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	pair, _ := graph.Choose([]int{0, 1, 2, 3}, 2)
	one, _ := graph.Choose([]int{0, 1, 2}, 1)
	fmt.Println(pair, graph.Link(0, 1).Kind, one)
	// Output: [0 1] NVLink [2]
}

func ExampleTree_Place() {
	tree, _ := topology.NewTree(topology.Level{Kind: topology.KindCluster}, topology.Level{Kind: topology.KindRack})
	for i, rack := range []string{"left", "left", "right", "right"} {
		_ = tree.Add(topology.Node{Name: fmt.Sprint("node", i), Path: []string{rack}, Devices: 8})
	}
	_ = tree.Take("node0", 2)
	places, err := tree.Place(topology.Gang{Tasks: 4, Devices: 4, Required: topology.KindRack})
	fmt.Println(places, err)
	_, err = tree.Place(topology.Gang{Tasks: 8, Devices: 4, Required: topology.KindRack})
	fmt.Println(err)
	// Output:
	// [{node2 2} {node3 2}] <nil>
	// topology: no room: 8 tasks with 4 devices each within one rack: room for 4; 30 of 32 devices are free, at most 8 on a node
}

func ExampleTree_Groups() {
	tree, _ := topology.NewTree(topology.Level{Kind: topology.KindRack})
	var members []topology.Member
	for _, node := range []string{"a", "b"} {
		_ = tree.Add(topology.Node{Name: node, Devices: 2})
		members = append(members, topology.Member{Node: node}, topology.Member{Node: node, Device: 1})
	}
	groups, err := tree.Groups(members, topology.Parallel{Tensor: 2, Pipeline: 2})
	fmt.Println(groups.Tensor, groups.Pipeline, err)
	// Output: [[0 1] [2 3]] [[0 2] [1 3]] <nil>
}
