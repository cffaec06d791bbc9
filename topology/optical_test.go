package topology_test

import (
	"math"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

func TestOpticsCost(t *testing.T) {
	unknown := math.NaN()
	for _, c := range []struct {
		name   string
		optics topology.Optics
		want   topology.Cost
	}{
		{"nothing reported", topology.Optics{ReceiveDBm: unknown, LimitDBm: unknown}, 0},
		{"strong", topology.Optics{ReceiveDBm: -1, LimitDBm: -10}, 0},
		{"3 dB", topology.Optics{ReceiveDBm: -7, LimitDBm: -10}, 0},
		{"1.5 dB", topology.Optics{ReceiveDBm: -8.5, LimitDBm: -10}, 500},
		{"at the limit", topology.Optics{ReceiveDBm: -10, LimitDBm: -10}, topology.Down},
		{"dark", topology.Optics{ReceiveDBm: math.Inf(-1), LimitDBm: -10}, topology.Down},
		{"limit unknown", topology.Optics{ReceiveDBm: -40, LimitDBm: unknown}, 0},
		{"few errors", topology.Optics{ReceiveDBm: unknown, ErrorRate: 2.4e-6}, 0},
		{"errors", topology.Optics{ReceiveDBm: unknown, ErrorRate: 2.4e-5}, 500},
		{"too many errors", topology.Optics{ReceiveDBm: unknown, ErrorRate: 1e-3}, topology.Down},
		{"two flaps", topology.Optics{ReceiveDBm: 0, LimitDBm: -10, Flaps: 2}, 200},
		{"many flaps", topology.Optics{ReceiveDBm: 0, LimitDBm: -10, Flaps: math.MaxInt}, topology.Down},
		{"no flaps", topology.Optics{ReceiveDBm: 0, LimitDBm: -10, Flaps: -3}, 0},
		{"the worst counts", topology.Optics{ReceiveDBm: -8.5, LimitDBm: -10, ErrorRate: 2.4e-5, Flaps: 6}, 600},
	} {
		require.Equal(t, c.want, c.optics.Cost(), c.name)
	}
}

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

func TestNewGraphRefuses(t *testing.T) {
	good := func(i, j int) topology.Link { return topology.NewLink(topology.KindNVLink, 1) }
	for want, devices := range map[string][]topology.Device{
		"device 1 has no name":   {{Name: "a"}, {}},
		"\"a\" is listed twice":  {{Name: "a"}, {Name: "a"}},
		"513 devices, limit 512": numbered(513),
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
