package sysfs

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/topology"
)

// files is a tree: path and text.
type files map[string]string

// write makes the tree below a folder of the test.
func (f files) write(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range f {
		file := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return root
}

// memory makes the tree without a folder.
func (f files) memory() fstest.MapFS {
	m := make(fstest.MapFS)
	for name, text := range f {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// with returns the tree with another file, or without one when text is empty.
func (f files) with(name, text string) files {
	g := maps.Clone(f)
	if g[name] = text; text == "" {
		delete(g, name)
	}
	return g
}

// mi300 is a host with a card of another vendor, two linked devices in an order that the
// compute driver turns around, and one that it does not have.
func mi300() files {
	const drm, kfd = "sys/class/drm/", "sys/class/kfd/kfd/topology/nodes/"
	return files{
		drm + "card0/device/vendor":                      "0x1a03\n",
		drm + "card0-VGA-1/status":                       "connected\n",
		drm + "renderD128/device/vendor":                 "0x1002\n",
		drm + "card2/device/vendor":                      "0x1002\n",
		drm + "card2/device/uevent":                      "DRIVER=amdgpu\nPCI_CLASS=12000\nPCI_SLOT_NAME=0000:C1:00.0\n",
		drm + "card2/device/product_name":                "AMD Instinct MI300X OAM\n",
		drm + "card2/device/unique_id":                   "d4f2e87a11223344\n",
		drm + "card2/device/gpu_busy_percent":            "42\n",
		drm + "card2/device/mem_info_vram_total":         "206141652992\n",
		drm + "card2/device/mem_info_vram_used":          "1048576\n",
		drm + "card2/device/numa_node":                   "1\n",
		drm + "card2/device/hwmon/hwmon7/temp1_input":    "41000\n",
		drm + "card2/device/hwmon/hwmon7/power1_average": "135000000\n",
		drm + "card2/device/ras/umc_err_count":           "ue: 0\nce: 0\n",
		drm + "card2/device/current_link_speed":          "32.0 GT/s PCIe\n",
		drm + "card2/device/current_link_width":          "16\n",
		drm + "card10/device/vendor":                     "0x1002\n",
		drm + "card10/device/uevent":                     "PCI_SLOT_NAME=0000:05:00.0\n",
		drm + "card10/device/unique_id":                  "0xd4f2e87a55667788\n",
		drm + "card10/device/numa_node":                  "-1\n",
		drm + "card10/device/hwmon/hwmon3/power1_input":  "90000000\n",
		drm + "card10/device/ras/umc_err_count":          "ue: 2\nce: 7\n",
		drm + "card3/device/vendor":                      "0x1002\n",
		drm + "card3/device/current_link_speed":          "5.0 GT/s PCIe\n",
		drm + "card3/device/current_link_width":          "8\n",
		drm + "card3/device/ras/umc_err_count":           "ue: 0\nce: 3\n",
		kfd + "0/gpu_id":                                 "0\n",
		kfd + "0/properties":                             "cpu_cores_count 96\n",
		kfd + "1/gpu_id":                                 "51234\n",
		kfd + "1/name":                                   "aqua_vanjaram\n",
		kfd + "1/properties":                             "cpu_cores_count 0\nlocation_id 1280\ndomain 0\nhive_id 99\n",
		kfd + "1/io_links/0/properties":                  "type 2\nnode_from 1\nnode_to 0\nmax_bandwidth 64000\n",
		kfd + "1/io_links/1/properties":                  "type 11\nnode_from 1\nnode_to 2\nweight 15\nmin_bandwidth 50000\nmax_bandwidth 64000\n",
		kfd + "1/io_links/2/properties":                  "type 11\nnode_from 1\nnode_to 2\nmax_bandwidth 64000\n",
		kfd + "2/gpu_id":                                 "51235\n",
		kfd + "2/name":                                   "aqua_vanjaram\n",
		kfd + "2/properties":                             "location_id 49408\ndomain 0\n",
		kfd + "2/io_links/0/properties":                  "type 11\nnode_to 1\nmax_bandwidth 0\n",
		kfd + "2/p2p_links/0/properties":                 "type 2\nnode_to 1\nmax_bandwidth 31504\n",
		kfd + "2/p2p_links/1/properties":                 "type 5\nnode_to 1\n",
	}
}

func amd(t testing.TB, f files) ([]device.Device, error) {
	t.Helper()
	gpus, err := AMD(Config{Root: f.write(t)})
	require.NoError(t, err)
	require.Equal(t, "amdgpu", gpus.Source())
	return gpus.Devices(t.Context())
}

func TestAMD(t *testing.T) {
	list, err := amd(t, mi300())
	require.NoError(t, err)
	gts, lanes := 32.0, 16.0
	require.Equal(t, []device.Device{
		{
			ID: "0000:05:00.0", Vendor: device.AMD, Index: 0, Model: "aqua_vanjaram", UUID: "GPU-d4f2e87a55667788", BusID: "0000:05:00.0",
			Watts: device.Known(90.0), Health: device.Failed, Fault: "2 uncorrected memory errors",
			Links: []device.Link{{Kind: topology.KindXGMI, Peer: "0000:c1:00.0", Lanes: 2, BytesPerSecond: device.Known(128e9)}},
		},
		{
			ID: "0000:c1:00.0", Vendor: device.AMD, Index: 1, Model: "AMD Instinct MI300X OAM", UUID: "GPU-d4f2e87a11223344", BusID: "0000:c1:00.0",
			NUMANode: device.Known(1), MemoryBytes: device.Known(int64(206141652992)), UsedBytes: device.Known(int64(1048576)),
			Utilization: device.Known(0.42), Celsius: device.Known(41.0), Watts: device.Known(135.0), Health: device.Healthy,
			LinkBytesPerSecond: device.Known(gts * 1e9 / 8 * (128.0 / 130) * lanes),
			Links: []device.Link{
				{Kind: topology.KindXGMI, Peer: "0000:05:00.0", Lanes: 1},
				{Kind: topology.KindHostBridge, Peer: "0000:05:00.0", BytesPerSecond: device.Known(31504e6)},
			},
		},
		{
			ID: "amd-card3", Vendor: device.AMD, Index: 3, Health: device.Degraded, Fault: "3 corrected memory errors",
			LinkBytesPerSecond: device.Known(5e9 / 8 * 0.8 * 8),
		},
	}, list)
}

func TestAMDFaults(t *testing.T) {
	const card, node = "sys/class/drm/card2/device/", "sys/class/kfd/kfd/topology/nodes/"
	cases := []struct{ file, text, want string }{
		{card + "gpu_busy_percent", "many", `/sys/class/drm/card2/device/gpu_busy_percent: line 1: gpu_busy_percent: "many"`},
		{card + "mem_info_vram_total", "8G", "mem_info_vram_total"},
		{card + "hwmon/hwmon7/temp1_input", "hot", "temp1_input"},
		{card + "ras/umc_err_count", "ue: 0\nce: x", `umc_err_count: line 2: ce: "x"`},
		{card + "current_link_speed", "fast GT/s", `current_link_speed: "fast"`},
		{card + "current_link_width", "x16", `current_link_width: "x16"`},
		{node + "1/gpu_id", "zero", "gpu_id"},
		{node + "1/properties", "domain 0\nlocation_id -1", `1/properties: line 2: location_id: "-1": want a number`},
		{node + "1/io_links/1/properties", "type eleven", `type: "eleven"`},
	}
	for _, c := range cases {
		list, err := amd(t, mi300().with(c.file, c.text))
		require.ErrorContains(t, err, c.want)
		var fault *device.TextError
		require.ErrorAs(t, err, &fault)
		require.Empty(t, list)
	}
	_, err := amd(t, files{"etc/hostname": "x"})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = AMD(Config{Root: filepath.Join(t.TempDir(), "nothing")})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = CPU(Config{Root: os.Args[0]})
	require.ErrorContains(t, err, "not a folder")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gpus, err := AMD(Config{Root: mi300().write(t)})
	require.NoError(t, err)
	_, err = gpus.Devices(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// TestAMDWithoutAnyFile: whichever file is missing, the rest is known.
func TestAMDWithoutAnyFile(t *testing.T) {
	for file := range mi300() {
		gpus := AMDGPUs{tree{mi300().with(file, "").memory()}}
		list, err := gpus.Devices(t.Context())
		require.NoError(t, err, file)
		require.GreaterOrEqual(t, len(list), 2, file)
	}
}

// broken is a tree whose files fail when they are read, as those of a device do that has
// gone.
type broken struct {
	fstest.MapFS
	file string
}

func (b broken) Open(name string) (fs.File, error) {
	f, err := b.MapFS.Open(name)
	if name == b.file {
		return brokenFile{f}, err
	}
	return f, err
}

type brokenFile struct{ fs.File }

func (brokenFile) Read([]byte) (int, error) { return 0, errors.New("no such device") }

func TestAMDThatGoesWhileItIsRead(t *testing.T) {
	whole := mi300().memory()
	for name := range whole {
		gpus := AMDGPUs{tree{broken{whole, name}}}
		list, err := gpus.Devices(t.Context())
		require.NoError(t, err, name)
		require.GreaterOrEqual(t, len(list), 2, name)
	}
}

func host() files {
	return files{
		"proc/cpuinfo":                       "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9654\nprocessor\t: 1\nmodel name\t: other\n",
		"proc/meminfo":                       "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\n",
		"proc/stat":                          "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3 4\n",
		"sys/class/hwmon/hwmon0/name":        "nvme\n",
		"sys/class/hwmon/hwmon4/name":        "k10temp\n",
		"sys/class/hwmon/hwmon4/temp1_input": "54375\n",
	}
}

func TestCPU(t *testing.T) {
	root := host().write(t)
	cpu, err := CPU(Config{Root: root})
	require.NoError(t, err)
	want := device.Device{
		ID: "cpu-0", Vendor: device.CPU, Model: "AMD EPYC 9654", Health: device.Healthy, Celsius: device.Known(54.375),
		MemoryBytes: device.Known(int64(1000 << 10)), UsedBytes: device.Known(int64(600 << 10)),
	}
	list, err := cpu.Devices(t.Context())
	require.NoError(t, err)
	require.Equal(t, []device.Device{want}, list)

	stat := filepath.Join(root, "proc/stat")
	require.NoError(t, os.WriteFile(stat, []byte("cpu  120 0 110 760 110 0 0 0 50 0\n"), 0o644))
	want.Utilization = device.Known(0.3)
	list, err = cpu.Devices(t.Context())
	require.NoError(t, err)
	require.Equal(t, []device.Device{want}, list)

	require.NoError(t, os.WriteFile(stat, []byte("cpu  20 0 10 60 10\n"), 0o644))
	list, err = cpu.Devices(t.Context())
	require.NoError(t, err)
	require.False(t, list[0].Utilization.Known, "counters that go back tell nothing")
}

func TestCPUFaults(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"proc/meminfo", "", "/proc/meminfo: MemTotal"},
		{"proc/meminfo", "x\nMemTotal: many kB", `/proc/meminfo: line 2: MemTotal: " many kB"`},
		{"proc/stat", "", "/proc/stat: line 1: cpu"},
		{"proc/stat", "cpu 1 2 3", "want cpu and at least 4 numbers"},
		{"proc/stat", "cpu 1 2 3 -4 5", "want numbers"},
		{"sys/class/hwmon/hwmon4/temp1_input", "warm", "temp1_input"},
	} {
		cpu, err := CPU(Config{Root: host().with(c.file, c.text).write(t)})
		require.NoError(t, err)
		_, err = cpu.Devices(t.Context())
		require.ErrorContains(t, err, c.want)
	}
}

// TestThisHost reads the real files.
func TestThisHost(t *testing.T) {
	if _, err := os.Stat("/proc/stat"); err != nil {
		t.Skip("no /proc on this system")
	}
	cpu, err := CPU(Config{})
	require.NoError(t, err)
	list, err := cpu.Devices(t.Context())
	require.NoError(t, err)
	require.Greater(t, list[0].MemoryBytes.Value, int64(1<<20))
	require.Less(t, list[0].UsedBytes.Value, list[0].MemoryBytes.Value)
}

// FuzzFiles: whatever stands in the files, the result is a list or a TextError.
func FuzzFiles(f *testing.F) {
	whole := mi300()
	maps.Copy(whole, host())
	names := slices.Sorted(maps.Keys(whole))
	for i, name := range names {
		f.Add(uint(i), whole[name])
	}
	f.Fuzz(func(t *testing.T, i uint, text string) {
		memory := tree{whole.with(names[i%uint(len(names))], text).memory()}
		for _, p := range []device.Provider{&AMDGPUs{memory}, &Processors{files: memory}} {
			list, err := p.Devices(t.Context())
			var fault *device.TextError
			require.True(t, err == nil || errors.As(err, &fault), "%v", err)
			for _, d := range list {
				require.GreaterOrEqual(t, d.MemoryBytes.Value, int64(0))
				require.GreaterOrEqual(t, d.UsedBytes.Value, int64(0))
			}
		}
	})
}
