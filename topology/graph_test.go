package topology_test

import (
	"math"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

func TestNewGraphRefuses(t *testing.T) {
	good := func(i, j int) topology.Link { return topology.NewLink(topology.KindNVLink, 1) }
	for want, devices := range map[string][]topology.Device{
		"device 1 has no name":   {{Name: "a"}, {}},
		"\"a\" is listed twice":  {{Name: "a"}, {Name: "a"}},
		"257 devices, limit 256": numbered(257),
	} {
		_, err := topology.NewGraph(devices, good)
		require.ErrorIs(t, err, topology.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	for _, l := range []topology.Link{{Lanes: -1}, {Lanes: 37}, {BytesPerSecond: -1}, {BytesPerSecond: math.NaN()}, {Cost: -1}, {Cost: 1001}} {
		_, err := topology.NewGraph(numbered(2), func(i, j int) topology.Link { return l })
		require.ErrorIs(t, err, topology.ErrInvalid, "%+v", l)
		require.ErrorContains(t, err, "link of \"GPU0\" and \"GPU1\"")
	}
	g := graphOf(t, 2, good)
	require.Equal(t, topology.Link{}, g.Link(0, 2))
	require.Equal(t, topology.Link{}, g.Link(-1, 0))
}
