//go:build nvml && cgo && linux

package nvml

import (
	"context"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

// functionsOfTheMock are those that its devices have without further work.
var functionsOfTheMock = map[string]bool{
	"nvmlDeviceGetUUID": true, "nvmlDeviceGetName": true, "nvmlDeviceGetPciInfo_v3": true, "nvmlDeviceGetMemoryInfo": true,
}

func mocked(dgx *server.Server, has func(string) bool) *Provider {
	return newProvider(&binding{nvml: dgx, has: has, unload: func() error { return nil }})
}

func TestDGXA100(t *testing.T) {
	p := mocked(dgxa100.New(), func(symbol string) bool { return functionsOfTheMock[symbol] })
	list, err := p.Devices(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 8)
	for i, d := range list {
		require.Equal(t, i, d.Index)
		require.Equal(t, device.NVIDIA, d.Vendor)
		require.Contains(t, d.Model, "A100-SXM4-40GB")
		require.Contains(t, d.UUID, "GPU-")
		require.Equal(t, d.UUID, d.ID)
		require.Greater(t, d.MemoryBytes.Value, int64(40<<30)-1)
		require.False(t, d.Utilization.Known || d.Celsius.Known || d.Watts.Known)
		require.Equal(t, device.HealthUnknown, d.Health)
	}
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = p.Devices(t.Context())
	require.ErrorIs(t, err, ErrClosed)
}

func TestCloseDoesNotWaitForADriverThatHangs(t *testing.T) {
	dgx := dgxa100.New()
	asked, answer := make(chan struct{}), make(chan struct{})
	dgx.DeviceGetCountFunc = func() (int, nvml.Return) {
		close(asked)
		<-answer
		return 0, nvml.SUCCESS
	}
	shut := 0
	dgx.ShutdownFunc = func() nvml.Return { shut++; return nvml.SUCCESS }
	p := mocked(dgx, func(string) bool { return false })
	done := make(chan error)
	go func() { _, err := p.Devices(t.Context()); done <- err }()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Devices(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, p.Close())
	close(answer)
	require.NoError(t, <-done)
	_, err = p.Devices(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, 1, shut)
}

func TestDriverThatRefuses(t *testing.T) {
	dgx := dgxa100.New()
	p := mocked(dgx, func(symbol string) bool {
		return functionsOfTheMock[symbol] || symbol == "nvmlDeviceGetUtilizationRates" || symbol == "nvmlDeviceGetTemperature"
	})
	for i := range dgx.Devices {
		d := dgx.Devices[i].(*server.Device)
		d.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 101}, nvml.SUCCESS }
		d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	}
	lost := dgx.Devices[2].(*server.Device)
	lost.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
	handle := dgx.DeviceGetHandleByIndexFunc
	dgx.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 3 {
			return nil, nvml.ERROR_NO_PERMISSION
		}
		return handle(i)
	}
	list, err := p.Devices(t.Context())
	require.NoError(t, err)
	require.False(t, list[0].Utilization.Known, "101 %")
	require.False(t, list[0].Celsius.Known)
	require.Equal(t, device.HealthUnknown, list[0].Health)
	require.Equal(t, device.Gone, list[2].Health)
	require.Equal(t, "GPU is lost", list[2].Fault)
	require.Equal(t, device.Device{ID: "nvidia-3", Vendor: device.NVIDIA, Index: 3, Fault: "no permission"}, list[3])

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Devices(ctx)
	require.ErrorIs(t, err, context.Canceled)
	dgx.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_DRIVER_NOT_LOADED }
	_, err = p.Devices(t.Context())
	require.EqualError(t, err, "nvml: nvmlDeviceGetCount: code 9 (driver is not loaded)")
	dgx.ShutdownFunc = func() nvml.Return { return nvml.ERROR_UNKNOWN }
	require.EqualError(t, p.Close(), "nvml: nvmlShutdown: code 999 (unknown error)")
	require.Error(t, p.Close())
}
