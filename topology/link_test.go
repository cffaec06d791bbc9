package topology_test

import (
	"math"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

func TestLinkScore(t *testing.T) {
	nvlink := topology.NewLink(topology.KindNVLink, 2)
	require.Equal(t, 200, nvlink.Score())
	nvlink.Path = topology.KindSwitch
	require.Equal(t, 250, nvlink.Score(), "as go-gpuallocator counts")
	nvlink.Cost = 100
	require.Equal(t, 225, nvlink.Score())
	require.InDelta(t, 45e9, nvlink.Bandwidth(), 1)
	nvlink.Cost = topology.Down
	require.Zero(t, nvlink.Score())
	require.Zero(t, topology.Link{}.Score())
	require.Zero(t, topology.NewLink(topology.Kind(200), 1).Score())
	require.Equal(t, "kind 200", topology.Kind(200).String())
	require.Equal(t, 8000, topology.Link{Kind: topology.KindNVLink, Lanes: 36, BytesPerSecond: math.Inf(1)}.Score())
	for k := topology.KindRegion; k < topology.KindXGMI; k++ {
		require.Greater(t, topology.NewLink(k, 1).Score(), topology.NewLink(k-1, 1).Score(), "%v", k)
		require.Positive(t, topology.Rate(k))
	}
	for k := topology.KindXGMI; k < topology.KindSame; k++ {
		require.True(t, k.Direct())
		require.Greater(t, topology.NewLink(k, 1).Score(), topology.NewLink(topology.KindBoard, 0).Score(), "%v", k)
		require.Greater(t, topology.NewLink(topology.KindSame, 0).Score(), topology.NewLink(k, topology.MaxLanes).Score())
	}
}
