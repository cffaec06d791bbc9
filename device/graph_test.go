package device_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/sim"
	"github.com/elasticps/elasticps/topology"
)

func graph(t testing.TB, list []device.Device) *topology.Graph {
	t.Helper()
	g, err := device.Graph(list)
	require.NoError(t, err)
	return g
}

func TestGraph(t *testing.T) {
	lanes := func(peer string, n int, rate float64) device.Link {
		return device.Link{Kind: topology.KindNVLink, Peer: peer, Lanes: n, BytesPerSecond: device.Figure[float64]{Value: rate, Known: rate > 0}}
	}
	way := func(peer string, kind topology.Kind) device.Link { return device.Link{Kind: kind, Peer: peer} }
	numa := []device.Figure[int]{device.Known(0), device.Known(1), {}}
	for name, c := range map[string]struct {
		a, b []device.Link
		numa [2]int // indices above
		want topology.Link
	}{
		"nothing is known":                     {nil, nil, [2]int{2, 0}, topology.NewLink(topology.KindUnknown, 0)},
		"same memory":                          {nil, nil, [2]int{0, 0}, topology.NewLink(topology.KindSocket, 0)},
		"different memories":                   {nil, nil, [2]int{0, 1}, topology.NewLink(topology.KindNode, 0)},
		"a way that is told":                   {[]device.Link{way("b", topology.KindSwitch)}, []device.Link{way("a", topology.KindSwitch)}, [2]int{0, 1}, topology.NewLink(topology.KindSwitch, 0)},
		"direct, with the way beneath":         {[]device.Link{lanes("b", 4, 0), way("b", topology.KindSwitch)}, []device.Link{lanes("a", 4, 0), way("a", topology.KindSwitch)}, [2]int{2, 2}, topology.Link{Kind: topology.KindNVLink, Lanes: 4, Path: topology.KindSwitch, BytesPerSecond: 100e9}},
		"bandwidth that is reported":           {[]device.Link{lanes("b", 2, 106e9)}, []device.Link{lanes("a", 2, 106e9)}, [2]int{2, 2}, topology.Link{Kind: topology.KindNVLink, Lanes: 2, BytesPerSecond: 106e9}},
		"of a way as well":                     {[]device.Link{{Kind: topology.KindHostBridge, Peer: "b", BytesPerSecond: device.Known(7e9)}}, []device.Link{{Kind: topology.KindHostBridge, Peer: "a", BytesPerSecond: device.Known(7e9)}}, [2]int{2, 2}, topology.Link{Kind: topology.KindHostBridge, BytesPerSecond: 7e9}},
		"over switches, where the fewer count": {[]device.Link{lanes("", 18, 450e9)}, []device.Link{lanes("", 9, 225e9)}, [2]int{2, 2}, topology.Link{Kind: topology.KindNVLink, Lanes: 9, BytesPerSecond: 225e9}},
		"one end has no switch":                {[]device.Link{lanes("", 18, 0)}, nil, [2]int{0, 0}, topology.NewLink(topology.KindSocket, 0)},
		"one end does not see the link":        {[]device.Link{lanes("b", 4, 0)}, nil, [2]int{0, 0}, topology.NewLink(topology.KindSocket, 0)},
		"all links down":                       {[]device.Link{lanes("b", 0, 0)}, []device.Link{lanes("a", 0, 0)}, [2]int{0, 1}, topology.NewLink(topology.KindNode, 0)},
		"more lanes than there are":            {[]device.Link{lanes("b", 99, 0)}, []device.Link{lanes("a", 99, 0)}, [2]int{2, 2}, topology.NewLink(topology.KindNVLink, topology.MaxLanes)},
	} {
		g := graph(t, []device.Device{
			{ID: "a", NUMANode: numa[c.numa[0]], Links: c.a}, {ID: "b", NUMANode: numa[c.numa[1]], Links: c.b},
		})
		require.Equal(t, c.want, g.Link(0, 1), name)
		require.Equal(t, c.want, g.Link(1, 0), name)
	}
	_, err := device.Graph([]device.Device{{ID: "a"}, {ID: "a"}})
	require.ErrorIs(t, err, topology.ErrInvalid)
}

// The devices of a simulated host: those of a vendor are linked, those of two are not.
func TestGraphOfAHost(t *testing.T) {
	host, err := sim.New(sim.Config{Devices: []sim.Spec{{Vendor: device.NVIDIA, Count: 2}, {Vendor: device.Ascend, Count: 2}}})
	require.NoError(t, err)
	list, err := host.Devices(t.Context())
	require.NoError(t, err)
	g := graph(t, list)
	require.Equal(t, topology.KindNVLink, g.Link(0, 1).Kind)
	require.InDelta(t, 450e9, g.Link(0, 1).Bandwidth(), 1)
	require.Equal(t, topology.KindHCCS, g.Link(2, 3).Kind)
	require.Equal(t, topology.KindSocket, g.Link(0, 2).Kind)
}

// An inventory knows devices by the names of their first source; links that another source
// tells lead to them by these names.
func TestInventoryNamesPeers(t *testing.T) {
	first := &script{name: "page", devices: []device.Device{
		{ID: "0", Vendor: "x", BusID: "0000:01:00.0"}, {ID: "1", Vendor: "x", BusID: "0000:02:00.0"},
	}}
	second := &script{name: "library", devices: []device.Device{
		{ID: "GPU-a", UUID: "GPU-a", Vendor: "x", BusID: "0000:01:00.0", Links: []device.Link{{Kind: topology.KindXGMI, Peer: "GPU-b", Lanes: 99}, {Kind: topology.KindNode, Peer: "GPU-c"}}},
		{ID: "GPU-b", UUID: "GPU-b", Vendor: "x", BusID: "0000:02:00.0", Links: []device.Link{{Kind: topology.KindXGMI, Peer: "GPU-a", Lanes: 2}}},
	}}
	i := inventory(t, first, second)
	for range 2 {
		list, err := i.Refresh(t.Context())
		require.NoError(t, err)
		require.Equal(t, []device.Link{{Kind: topology.KindXGMI, Peer: "1", Lanes: topology.MaxLanes}, {Kind: topology.KindNode, Peer: "GPU-c"}}, list[0].Links)
		require.Equal(t, []device.Link{{Kind: topology.KindXGMI, Peer: "0", Lanes: 2}}, list[1].Links)
		require.Equal(t, topology.KindXGMI, graph(t, list).Link(0, 1).Kind)
	}
	require.Equal(t, "GPU-b", second.devices[0].Links[0].Peer, "what a source gave is its own")
}
