package sim

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/topology"
)

func mixed(t testing.TB, seed uint64) *Host {
	t.Helper()
	h, err := New(Config{Seed: seed, MinLoad: 0.25, MaxLoad: 0.75, Devices: []Spec{
		{Vendor: device.NVIDIA, Count: 2},
		{Vendor: device.Ascend, Count: 2},
		{Vendor: device.MooreThreads, Count: 2},
		{Vendor: device.AMD, Model: "MI210", MemoryBytes: 64 * gib},
		{Vendor: device.NVIDIA},
	}})
	require.NoError(t, err)
	return h
}

func TestConfig(t *testing.T) {
	_, err := New(Config{
		Devices: []Spec{{Count: -1}, {Vendor: "x", MemoryBytes: -1}, {Vendor: "x", Count: 1024}},
		MinLoad: math.NaN(), MaxLoad: 2, Step: -1,
	})
	for _, text := range []string{
		"Devices[0].Vendor is empty", "Devices[0].Count -1: want 0 to 1024", "Devices[1].MemoryBytes -1",
		"1025 devices: want 1 to 1024", "MinLoad NaN: want 0 to 1", "MaxLoad 2: want 0 to 1", "Step -1ns",
	} {
		require.ErrorContains(t, err, text)
	}
	_, err = New(Config{})
	require.ErrorContains(t, err, "0 devices")
	_, err = New(Config{Devices: []Spec{{Vendor: "x"}}, MinLoad: 0.5, MaxLoad: 0.4})
	require.ErrorContains(t, err, "MinLoad 0.5: want at most MaxLoad, 0.4")
}

func TestHostListsItsDevices(t *testing.T) {
	h := mixed(t, 1)
	list, err := h.Devices(t.Context())
	require.NoError(t, err)
	var ids []string
	for _, d := range list {
		ids = append(ids, d.ID)
		require.Equal(t, device.Healthy, d.Health)
		require.GreaterOrEqual(t, d.Utilization.Value, 0.25)
		require.LessOrEqual(t, d.Utilization.Value, 0.75)
		require.LessOrEqual(t, d.UsedBytes.Value, d.MemoryBytes.Value)
	}
	require.Equal(t, []string{"nvidia-0", "nvidia-1", "ascend-0", "ascend-1", "moorethreads-0", "moorethreads-1", "amd-0", "nvidia-2"}, ids)
	require.Equal(t, "MI210", list[6].Model)
	require.Empty(t, list[6].Links)
	require.Equal(t, []device.Link{{Kind: topology.KindHCCS, Peer: "ascend-0", Lanes: 7, BytesPerSecond: device.Known(196e9)}}, list[3].Links)
	list[3].Links[0].Peer = "changed by its owner"
	again, err := h.Devices(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ascend-0", again[3].Links[0].Peer)
}

func TestLoadFollowsFromTheSeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, other := mixed(t, 7), mixed(t, 7), mixed(t, 8)
		before := -1.0
		for range 100 {
			time.Sleep(time.Second)
			la, err := a.Devices(t.Context())
			require.NoError(t, err)
			lb, err := b.Devices(t.Context())
			require.NoError(t, err)
			require.Equal(t, la, lb)
			lo, err := other.Devices(t.Context())
			require.NoError(t, err)
			require.NotEqual(t, la, lo)
			u := la[0].Utilization.Value
			require.NotEqual(t, before, u)
			require.NotEqual(t, u, la[1].Utilization.Value, "each device has its own")
			if before >= 0 {
				require.InDelta(t, before, u, 0.5/10+1e-9, "half the range in ten seconds at most")
			}
			before = u
		}
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mixed(t, 1)
		whole, err := h.Devices(t.Context())
		require.NoError(t, err)

		require.NoError(t, h.Inject("nvidia-1", Vanish))
		require.NoError(t, h.Inject("ascend-0", ECC))
		list, err := h.Devices(t.Context())
		require.NoError(t, err)
		require.Len(t, list, len(whole)-1)
		require.Equal(t, "ascend-0", list[1].ID)
		require.Equal(t, device.Failed, list[1].Health)
		require.Equal(t, "uncorrected memory errors", list[1].Fault)

		require.NoError(t, h.Inject("amd-0", Hang))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = h.Devices(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "sim: amd-0 hangs")

		answered := make(chan error)
		go func() {
			_, err := h.Devices(t.Context())
			answered <- err
		}()
		synctest.Wait()
		require.NoError(t, h.Inject("nvidia-1", None))
		synctest.Wait()
		select {
		case <-answered:
			t.Fatal("answered while a device hangs")
		default:
		}
		require.NoError(t, h.Inject("ascend-0", None))
		require.NoError(t, h.Inject("amd-0", None))
		require.NoError(t, <-answered)

		require.ErrorContains(t, h.Inject("nvidia-9", Vanish), `no device "nvidia-9" among 8`)
		require.ErrorContains(t, h.Inject("nvidia-1", 9), "fault 9")
	})
}

func BenchmarkDevices(b *testing.B) {
	h := mixed(b, 1)
	for b.Loop() {
		_, _ = h.Devices(b.Context())
	}
}
