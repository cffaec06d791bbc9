package sched_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/topology"
)

// Devices that are linked are taken together, whatever their numbers, and a graph that does
// not fit the node decides nothing.
func TestDevicesByTopology(t *testing.T) {
	devices := make([]topology.Device, 4)
	for i := range devices {
		devices[i].Name = string(rune('a' + i))
	}
	linked, err := topology.NewGraph(devices, func(i, j int) topology.Link {
		if i+j == 3 { // 0 with 3, 1 with 2
			return topology.NewLink(topology.KindNVLink, 2)
		}
		return topology.NewLink(topology.KindSocket, 1)
	})
	require.NoError(t, err)
	small, err := topology.NewGraph(devices[:2], func(int, int) topology.Link { return topology.NewLink(topology.KindNVLink, 1) })
	require.NoError(t, err)
	pick := sched.ByTopology(map[string]*topology.Graph{"n00": linked, "n01": small})
	c := newCluster(t, sched.Config{Nodes: boxes(4, 4), PickDevices: pick})
	require.Equal(t, []int{0, 3}, place(t, c, whole("first", 2)).Devices.List())
	require.Equal(t, []int{1, 2}, place(t, c, whole("second", 2)).Devices.List())
	last := place(t, c, whole("third", 2))
	require.Equal(t, "n01", last.Node)
	require.Equal(t, []int{0, 1}, last.Devices.List(), "by the default")
	require.Zero(t, pick("n00", 0b1, 2), "too few")
}
