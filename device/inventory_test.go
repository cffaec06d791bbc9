package device_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/sim"
)

// script is a provider that says what the test wants.
type script struct {
	name    string
	devices []device.Device
	err     error
	asked   int
	blocks  chan struct{} // a driver that does not look at ctx
}

func (s *script) Source() string { return s.name }

func (s *script) Devices(context.Context) ([]device.Device, error) {
	s.asked++
	if s.blocks != nil {
		<-s.blocks
	}
	return s.devices, s.err
}

func inventory(t testing.TB, providers ...device.Provider) *device.Inventory {
	t.Helper()
	i, err := device.NewInventory(device.InventoryConfig{Providers: providers, Timeout: time.Second})
	require.NoError(t, err)
	return i
}

func health(list []device.Device) map[string]device.Health {
	states := make(map[string]device.Health)
	for _, d := range list {
		states[d.ID] = d.Health
	}
	return states
}

func TestInventoryConfig(t *testing.T) {
	_, err := device.NewInventory(device.InventoryConfig{Timeout: -1})
	require.ErrorContains(t, err, "Providers is empty: want at least 1")
	require.ErrorContains(t, err, "Timeout -1ns: want >= 0")
	_, err = device.NewInventory(device.InventoryConfig{Providers: []device.Provider{nil}})
	require.ErrorContains(t, err, "Providers[0] is nil")
}

func TestInventoryOutlivesFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, err := sim.New(sim.Config{Devices: []sim.Spec{{Vendor: device.NVIDIA, Count: 2}, {Vendor: device.AMD}}})
		require.NoError(t, err)
		i := inventory(t, host)
		require.Empty(t, i.Devices())
		list, err := i.Refresh(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]device.Health{"nvidia-0": device.Healthy, "nvidia-1": device.Healthy, "amd-0": device.Healthy}, health(list))

		require.NoError(t, host.Inject("nvidia-1", sim.Vanish))
		list, err = i.Refresh(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]device.Health{"nvidia-0": device.Healthy, "nvidia-1": device.Gone, "amd-0": device.Healthy}, health(list))
		gone := list[2]
		require.Equal(t, "nvidia-1", gone.ID, "the last in the list")
		require.Equal(t, "not listed any more", gone.Fault)
		require.Equal(t, "H100", gone.Model, "what lasts is kept")
		require.Equal(t, int64(80<<30), gone.MemoryBytes.Value)
		require.False(t, gone.UsedBytes.Known || gone.Utilization.Known || gone.Celsius.Known || gone.Watts.Known)

		require.NoError(t, host.Inject("amd-0", sim.Hang))
		begin := time.Now()
		list, err = i.Refresh(t.Context())
		require.Equal(t, time.Second, time.Since(begin))
		var provider *device.ProviderError
		require.ErrorAs(t, err, &provider)
		require.Equal(t, "sim", provider.Source)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, map[string]device.Health{"nvidia-0": device.HealthUnknown, "nvidia-1": device.Gone, "amd-0": device.HealthUnknown}, health(list))
		require.Contains(t, list[0].Fault, "sim does not answer")
		require.False(t, list[0].Utilization.Known)

		require.NoError(t, host.Inject("amd-0", sim.ECC))
		require.NoError(t, host.Inject("nvidia-1", sim.None))
		list, err = i.Refresh(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]device.Health{"nvidia-0": device.Healthy, "nvidia-1": device.Healthy, "amd-0": device.Failed}, health(list))
		require.Equal(t, list, i.Devices())
		list[1].Links[0].Peer = "changed by its owner"
		require.Equal(t, "nvidia-1", i.Devices()[1].Links[0].Peer)
	})
}

func TestInventoryAsksAHangingDriverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := &script{name: "stuck", blocks: make(chan struct{}), devices: []device.Device{{ID: "a", Vendor: "x"}}}
		good := &script{name: "good", devices: []device.Device{{ID: "b", Vendor: "x"}}}
		i := inventory(t, stuck, good)
		for range 5 {
			list, err := i.Refresh(t.Context())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "stuck")
			require.Len(t, list, 1)
		}
		synctest.Wait()
		require.Equal(t, 1, stuck.asked)
		require.Equal(t, 5, good.asked)
		close(stuck.blocks)
		list, err := i.Refresh(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 2)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = i.Refresh(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestInventoryMergesSources(t *testing.T) {
	cause := errors.New("broken")
	tool := &script{name: "tool", devices: []device.Device{
		{ID: "GPU-1", UUID: "GPU-1", Vendor: "x", Index: 1, Utilization: device.Known(0.5), Health: device.Healthy},
		{ID: "GPU-0", UUID: "GPU-0", Vendor: "x", BusID: "0000:01:00.0", MemoryBytes: device.Known(int64(100)), UsedBytes: device.Known(int64(7))},
	}}
	page := &script{name: "page", devices: []device.Device{
		{ID: "0", Vendor: "x", BusID: "0000:01:00.0", MemoryBytes: device.Known(int64(99)), Watts: device.Known(300.0), Model: "big"},
		{ID: "1", UUID: "GPU-1", Vendor: "x", Utilization: device.Known(0.9), Health: device.Degraded, Fault: "link down"},
		{ID: "GPU-1", Vendor: "y", Index: 3},
	}}
	i := inventory(t, tool, page)
	list, err := i.Refresh(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 3)
	require.Equal(t, device.Device{
		ID: "GPU-0", UUID: "GPU-0", Vendor: "x", BusID: "0000:01:00.0", Model: "big",
		MemoryBytes: device.Known(int64(100)), UsedBytes: device.Known(int64(7)), Watts: device.Known(300.0),
	}, list[0])
	require.Equal(t, device.Device{
		ID: "GPU-1", UUID: "GPU-1", Vendor: "x", Index: 1, Utilization: device.Known(0.5), Health: device.Degraded, Fault: "link down",
	}, list[1])
	require.Equal(t, device.Vendor("y"), list[2].Vendor)

	tool.err = cause // the other source still lists its devices
	list, err = i.Refresh(t.Context())
	require.ErrorIs(t, err, cause)
	require.Equal(t, device.Known(300.0), list[0].Watts)
	require.Equal(t, device.Known(int64(99)), list[0].MemoryBytes, "of who answers")
	require.False(t, list[0].UsedBytes.Known)
	require.Equal(t, device.Known(0.9), list[1].Utilization)
}

func TestInventoryKnowsALostDeviceAgain(t *testing.T) {
	whole := []device.Device{
		{ID: "GPU-0", UUID: "GPU-0", Vendor: "x", Index: 0, BusID: "0000:01:00.0", Model: "big"},
		{ID: "GPU-1", UUID: "GPU-1", Vendor: "x", Index: 1, BusID: "0000:02:00.0", Model: "big"},
	}
	s := &script{name: "tool", devices: whole}
	i := inventory(t, s)
	_, err := i.Refresh(t.Context())
	require.NoError(t, err)
	for _, lost := range []device.Device{
		{ID: "0000:02:00.0", Vendor: "x", Index: -1, BusID: "0000:02:00.0", Health: device.Gone, Fault: "off the bus"},
		{ID: "x-1", Vendor: "x", Index: 1, Health: device.Gone, Fault: "off the bus"},
	} {
		s.devices = []device.Device{whole[0], lost}
		list, err := i.Refresh(t.Context())
		require.NoError(t, err)
		gone := whole[1]
		gone.Health, gone.Fault = device.Gone, "off the bus"
		require.Equal(t, []device.Device{whole[0], gone}, list)
	}
}

func TestInventoryForgetsImpossibleFigures(t *testing.T) {
	s := &script{name: "liar", devices: []device.Device{{
		Vendor: "x", Index: 4, MemoryBytes: device.Known(int64(10)), UsedBytes: device.Known(int64(11)), Utilization: device.Known(1.01),
		Celsius: device.Known(math.NaN()), Watts: device.Known(math.Inf(1)), NUMANode: device.Known(-1), LinkBytesPerSecond: device.Known(-1.0),
	}}}
	list, err := inventory(t, s).Refresh(t.Context())
	require.NoError(t, err)
	require.Equal(t, []device.Device{{ID: "x-4", Vendor: "x", Index: 4, MemoryBytes: device.Known(int64(10))}}, list)
}

func TestInventoryRemembersABoundedNumberOfTheGone(t *testing.T) {
	s := &script{name: "churn"}
	i := inventory(t, s)
	for n := range 200 {
		s.devices = []device.Device{{ID: fmt.Sprint(n), Vendor: "x"}, {ID: fmt.Sprint("b", n), Vendor: "x"}}
		list, err := i.Refresh(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, len(list), 2+256)
	}
	require.Len(t, i.Devices(), 2+256)
}

func BenchmarkRefresh(b *testing.B) {
	host, err := sim.New(sim.Config{Devices: []sim.Spec{{Vendor: device.NVIDIA, Count: 8}}})
	require.NoError(b, err)
	i := inventory(b, host)
	for b.Loop() {
		_, err := i.Refresh(b.Context())
		require.NoError(b, err)
	}
}
