//go:build nvml && cgo && linux

package nvml

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/topology"
)

// fakeLibrary is the variable that names the library to the test's own process: functions
// are bound once in a process, so that each library needs one.
const fakeLibrary = "ELASTICPS_TEST_NVML"

// build compiles the fake library with its macros.
func build(t *testing.T, macros ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("no gcc on this system")
	}
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := []string{"-shared", "-fPIC", "-Wall", "-Werror", "-o", path, "testdata/fakenvml.c"}
	for _, m := range macros {
		args = append(args, "-D"+m)
	}
	out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// fake runs check in a process of its own that finds the library, built with the macros.
func fake(t *testing.T, check func(t *testing.T, path string), macros ...string) {
	t.Helper()
	if path := os.Getenv(fakeLibrary); path != "" {
		check(t, path)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), fakeLibrary+"="+build(t, macros...))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

func openFake(t *testing.T, path string) *Provider {
	t.Helper()
	p, err := Open(Config{Library: path})
	require.NoError(t, err)
	return p
}

func TestFakeLibrary(t *testing.T) {
	fake(t, func(t *testing.T, path string) {
		for range 3 { // closed and opened again
			p := openFake(t, path)
			list, err := p.Devices(t.Context())
			require.NoError(t, err)
			perLane := 25781e6
			gen4 := topology.PCIeBytesPerSecond(16, 16)
			require.Equal(t, []device.Device{
				{
					ID: "GPU-fake-0", UUID: "GPU-fake-0", Vendor: device.NVIDIA, Index: 0, Model: "Fake A100", BusID: "0000:07:00.0",
					MemoryBytes: device.Known(int64(80 << 30)), UsedBytes: device.Known(int64(1 << 30)), Utilization: device.Known(0.55),
					Celsius: device.Known(40.0), Watts: device.Known(61.5), Health: device.Healthy, LinkBytesPerSecond: device.Known(gen4),
					Links: []device.Link{
						{Kind: topology.KindNVLink, Peer: "GPU-fake-1", Lanes: 2, BytesPerSecond: device.Known(2 * perLane)},
						{Kind: topology.KindNVLink, Lanes: 1, BytesPerSecond: device.Known(perLane)},
						{Kind: topology.KindHostBridge, Peer: "GPU-fake-1"},
					},
				},
				{
					ID: "GPU-fake-1", UUID: "GPU-fake-1", Vendor: device.NVIDIA, Index: 1, Model: "Fake A100", BusID: "0000:08:00.0",
					MemoryBytes: device.Known(int64(80 << 30)), UsedBytes: device.Known(int64(2 << 30)),
					Celsius: device.Known(41.0), Watts: device.Known(61.501), Health: device.Failed, Fault: "3 uncorrected memory errors",
					LinkBytesPerSecond: device.Known(gen4),
				},
			}, list)
			require.NoError(t, p.Close())
		}
	})
}

func TestOldLibrary(t *testing.T) {
	fake(t, func(t *testing.T, path string) {
		p := openFake(t, path)
		list, err := p.Devices(t.Context())
		require.NoError(t, err)
		require.Equal(t, []device.Device{
			{ID: "nvidia-0", Vendor: device.NVIDIA, Index: 0}, {ID: "nvidia-1", Vendor: device.NVIDIA, Index: 1},
		}, list, "and the process lives")
		require.NoError(t, p.Close())
	}, "NO_OPTIONAL")
}

func TestMissingFunction(t *testing.T) {
	fake(t, func(t *testing.T, path string) {
		_, err := Open(Config{Library: path})
		var symbol *SymbolError
		require.ErrorAs(t, err, &symbol)
		require.Equal(t, "nvmlDeviceGetCount_v2", symbol.Symbol)
		require.Equal(t, path, symbol.Library)
	}, "NO_COUNT")
}

func TestLostDevice(t *testing.T) {
	fake(t, func(t *testing.T, path string) {
		p := openFake(t, path)
		list, err := p.Devices(t.Context())
		require.NoError(t, err)
		require.Equal(t, device.Device{ID: "nvidia-1", Vendor: device.NVIDIA, Index: 1, Health: device.Gone, Fault: "GPU is lost"}, list[1])
		require.Equal(t, device.Healthy, list[0].Health)
		require.NoError(t, p.Close())
	}, "LOST")
}

func TestDeviceThatRequiresReset(t *testing.T) {
	fake(t, func(t *testing.T, path string) {
		p := openFake(t, path)
		list, err := p.Devices(t.Context())
		require.NoError(t, err)
		require.Equal(t, device.Failed, list[1].Health)
		require.Equal(t, "GPU requires reset", list[1].Fault)
		require.False(t, list[1].MemoryBytes.Known)
		require.NoError(t, p.Close())
	}, "RESET")
}

func TestDriverIsNotLoaded(t *testing.T) {
	fake(t, func(t *testing.T, path string) {
		_, err := Open(Config{Library: path})
		require.EqualError(t, err, "nvml: nvmlInit: code 9 (driver is not loaded)")
	}, "INIT_CODE=9")
}

func TestNoLibrary(t *testing.T) {
	_, err := Open(Config{Library: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")})
	require.ErrorIs(t, err, ErrLibraryNotFound)
	text := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o644))
	_, err = Open(Config{Library: text})
	require.ErrorIs(t, err, ErrLibraryNotFound)
}

// TestThisHost reads the devices of the driver, where there is one.
func TestThisHost(t *testing.T) {
	p, err := Open(Config{})
	if err != nil {
		t.Skipf("no driver on this system: %v", err)
	}
	defer p.Close()
	list, err := p.Devices(t.Context())
	require.NoError(t, err)
	for _, d := range list {
		require.NotEmpty(t, d.UUID)
		require.NotEmpty(t, d.BusID)
	}
}
