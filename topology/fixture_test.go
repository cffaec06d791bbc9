package topology_test

import (
	"fmt"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

// numbered returns n accelerators.
func numbered(n int) []topology.Device {
	devices := make([]topology.Device, n)
	for i := range devices {
		devices[i] = topology.Device{Name: fmt.Sprintf("GPU%d", i), NUMA: topology.Unknown}
	}
	return devices
}

func graphOf(t testing.TB, n int, link func(i, j int) topology.Link) *topology.Graph {
	t.Helper()
	g, err := topology.NewGraph(numbered(n), link)
	require.NoError(t, err)
	return g
}

// wired is a link with NVLink lanes over a way of the kind, or that way alone.
func wired(lanes int, path topology.Kind) topology.Link {
	if lanes == 0 {
		return topology.NewLink(path, 0)
	}
	l := topology.NewLink(topology.KindNVLink, lanes)
	l.Path = path
	return l
}

// voltaLanes is the number of NVLinks of each pair of a DGX-1 with V100.
var voltaLanes = [8][8]int{
	{0, 1, 1, 2, 2, 0, 0, 0},
	{1, 0, 2, 1, 0, 2, 0, 0},
	{1, 2, 0, 2, 0, 0, 1, 0},
	{2, 1, 2, 0, 0, 0, 0, 1},
	{2, 0, 0, 0, 0, 1, 1, 2},
	{0, 2, 0, 0, 1, 0, 2, 1},
	{0, 0, 1, 0, 1, 2, 0, 2},
	{0, 0, 0, 1, 2, 1, 2, 0},
}

// dgx1Path is the way over PCIe: a switch for each pair of devices, two pairs to a socket.
// partner says which devices share a switch.
func dgx1Path(partner func(i int) int, i, j int) topology.Kind {
	switch {
	case i/4 != j/4:
		return topology.KindNode
	case partner(i) == j:
		return topology.KindSwitch
	}
	return topology.KindHostBridge
}

func dgx1Volta(t testing.TB) *topology.Graph {
	return graphOf(t, 8, func(i, j int) topology.Link {
		return wired(voltaLanes[i][j], dgx1Path(func(i int) int { return i ^ 1 }, i, j))
	})
}

// dgx1Pascal has one NVLink within each four and to the same place of the other four.
func dgx1Pascal(t testing.TB) *topology.Graph {
	return graphOf(t, 8, func(i, j int) topology.Link {
		lanes := 0
		if i/4 == j/4 || i%4 == j%4 {
			lanes = 1
		}
		return wired(lanes, dgx1Path(func(i int) int { return i ^ 2 }, i, j))
	})
}

// fourRTX8000 has a bridge of two NVLinks across the sockets: 0 with 3 and 1 with 2.
func fourRTX8000(t testing.TB) *topology.Graph {
	return graphOf(t, 4, func(i, j int) topology.Link {
		switch {
		case i+j == 3:
			return wired(2, topology.KindUnknown)
		case i/2 == j/2:
			return wired(0, topology.KindSocket)
		}
		return wired(0, topology.KindNode)
	})
}

// upTo returns 0 to n-1.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
