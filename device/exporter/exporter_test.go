package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

func page(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".txt")
	require.NoError(t, err)
	return string(text)
}

func TestDCGM(t *testing.T) {
	list, err := ParseDCGM(page(t, "dcgm"))
	require.NoError(t, err)
	const a100 = "NVIDIA A100-SXM4-80GB"
	require.Equal(t, []device.Device{
		{
			ID: "GPU-aaaa", UUID: "GPU-aaaa", Vendor: device.NVIDIA, Index: 0, Model: a100, BusID: "0000:07:00.0", Health: device.Healthy,
			MemoryBytes: device.Known(int64(81920 << 20)), UsedBytes: device.Known(int64(80252 << 20)),
			Utilization: device.Known(0.87), Celsius: device.Known(54.0), Watts: device.Known(301.215),
		},
		{
			ID: "GPU-bbbb", UUID: "GPU-bbbb", Vendor: device.NVIDIA, Index: 1, Model: a100, BusID: "0000:0b:00.0",
			Health: device.Failed, Fault: "XID 79", Utilization: device.Known(0.12),
		},
		{ID: "GPU-cccc", UUID: "GPU-cccc", Vendor: device.NVIDIA, Index: 2},
		{
			ID: "GPU-dddd/7", Vendor: device.NVIDIA, Index: 3, Model: "NVIDIA A100 1g.10gb", Utilization: device.Known(0.25),
			MemoryBytes: device.Known(int64(9728 << 20)), UsedBytes: device.Known(int64(100 << 20)),
		},
		{
			ID: "nvidia-4", Vendor: device.NVIDIA, Index: 4, MemoryBytes: device.Known(int64(23034 << 20)),
			Health: device.Failed, Fault: "2 uncorrected memory errors",
		},
		{ID: "nvidia-5", Vendor: device.NVIDIA, Index: 5, Health: device.Failed, Fault: "memory rows could not be remapped"},
	}, list)
}

func TestAscend(t *testing.T) {
	list, err := ParseAscend(page(t, "ascend"))
	require.NoError(t, err)
	require.Equal(t, []device.Device{
		{
			ID: "ascend-0", Vendor: device.Ascend, Index: 0, Model: "910B3", UUID: "AAAA-1", BusID: "0000:c1:00.0", Health: device.Healthy,
			MemoryBytes: device.Known(int64(65536 << 20)), UsedBytes: device.Known(int64(8192 << 20)),
			Utilization: device.Known(0.36), Celsius: device.Known(62.0), Watts: device.Known(188.30000305175781),
		},
		{
			ID: "ascend-1", Vendor: device.Ascend, Index: 1, Model: "310P3", UUID: "BBBB", Health: device.Failed, Fault: "error code 2147897344",
			MemoryBytes: device.Known(int64(21525 << 20)), UsedBytes: device.Known(int64(1701 << 20)), Utilization: device.Known(0.09),
		},
		{ID: "ascend-2", Vendor: device.Ascend, Index: 2, Health: device.Degraded, Fault: "network link is down"},
	}, list)
}

func TestFaultsNameLineAndField(t *testing.T) {
	many := ""
	for i := range 65 {
		many += fmt.Sprintf(`label%d="",`, i)
	}
	cases := []struct {
		parse      func(string) ([]device.Device, error)
		line, want string
	}{
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL`, `dcgm: line 2: DCGM_FI_DEV_GPU_UTIL: "DCGM_FI_DEV_GPU_UTIL": want a metric with a value`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu="0"}`, `dcgm: line 2: DCGM_FI_DEV_GPU_UTIL: `},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu="0"} high`, `dcgm: line 2: DCGM_FI_DEV_GPU_UTIL: "high": want a number`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1 2 3`, `want a value and at most a time`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu=0} 1`, `want labels as name="value"`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu="0} 1`, `want a label that ends with a quote`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu="0\`, `want a label that ends with a quote`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu="0"`, `want labels as name="value"`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{` + many + `} 1`, `at most 64`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL{gpu="first"} 1`, `want a label gpu with a number`},
		{ParseDCGM, `DCGM_FI_DEV_GPU_UTIL 1`, `want a label gpu or UUID`},
		{ParseAscend, `npu_chip_info_power{chip="0"} 1`, `npu-exporter: line 2: npu_chip_info_power: `},
	}
	for _, c := range cases {
		_, err := c.parse("# a page\n" + c.line + "\n")
		require.ErrorContains(t, err, c.want)
		var fault *device.TextError
		require.ErrorAs(t, err, &fault)
		require.Equal(t, 2, fault.Line)
	}
	var crowd strings.Builder
	for i := range maxDevices + 1 {
		fmt.Fprintf(&crowd, "npu_chip_info_power{id=\"%d\"} 1\n", i)
	}
	_, err := ParseAscend(crowd.String())
	require.ErrorContains(t, err, "line 4097")
	require.ErrorContains(t, err, "want at most 4096 devices")
}

func TestPages(t *testing.T) {
	stuck := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/dcgm", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page(t, "dcgm"))) })
	mux.HandleFunc("/ascend", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page(t, "ascend"))) })
	mux.Handle("/moved", http.RedirectHandler("/dcgm", http.StatusFound))
	mux.HandleFunc("/stuck", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(stuck)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	devices := func(path string, c Config, open func(Config) (*Page, error)) ([]device.Device, error) {
		c.URL, c.Transport = strings.Replace(server.URL, "http://", "http://user:secret@", 1)+path, transport
		p, err := open(c)
		require.NoError(t, err)
		return p.Devices(t.Context())
	}

	list, err := devices("/dcgm", Config{MaxBytes: int64(len(page(t, "dcgm")))}, DCGM)
	require.NoError(t, err)
	require.Len(t, list, 6)
	list, err = devices("/ascend", Config{}, Ascend)
	require.NoError(t, err)
	require.Len(t, list, 3)

	var fault *PageError
	_, err = devices("/dcgm", Config{MaxBytes: 100}, DCGM)
	require.ErrorIs(t, err, ErrTooLong)
	_, err = devices("/moved", Config{}, DCGM)
	require.ErrorAs(t, err, &fault)
	require.Equal(t, http.StatusFound, fault.Status)
	_, err = devices("/nothing", Config{}, DCGM)
	require.EqualError(t, err, "exporter: "+server.URL+"/nothing: status 404, want 200")
	_, err = devices("/stuck", Config{Timeout: 20 * time.Millisecond}, DCGM)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "secret")
	server.Close()
	_, err = devices("/dcgm", Config{}, DCGM)
	require.ErrorAs(t, err, &fault)
	require.NotContains(t, err.Error(), "secret")
}

func TestConfig(t *testing.T) {
	_, err := DCGM(Config{URL: "localhost:9400", Timeout: -1, MaxBytes: -1})
	require.ErrorContains(t, err, `URL "localhost:9400": want http://host:port/path`)
	require.ErrorContains(t, err, "Timeout -1ns")
	require.ErrorContains(t, err, "MaxBytes -1")
	p, err := Ascend(Config{})
	require.NoError(t, err)
	require.Equal(t, "npu-exporter", p.Source())
}

func fuzz(f *testing.F, name string, parse func(string) ([]device.Device, error)) {
	for line := range strings.Lines(page(f, name)) {
		f.Add(line)
	}
	f.Add(page(f, name))
	f.Add("DCGM_FI_X{a=\"\\\\\\n\\\"\",,}\t+Inf 5\nnpu_chip_x{}")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parse(text)
		if err != nil {
			var fault *device.TextError
			require.True(t, errors.As(err, &fault))
			require.NotZero(t, fault.Line)
			require.NotEmpty(t, fault.Field)
			require.Less(t, len(err.Error()), 1000)
			require.Empty(t, list)
		}
		for _, d := range list {
			require.NotEmpty(t, d.ID)
			require.GreaterOrEqual(t, d.Utilization.Value, 0.0)
			require.LessOrEqual(t, d.Utilization.Value, 1.0)
			require.GreaterOrEqual(t, d.MemoryBytes.Value, int64(0))
		}
	})
}

func FuzzDCGM(f *testing.F)   { fuzz(f, "dcgm", ParseDCGM) }
func FuzzAscend(f *testing.F) { fuzz(f, "ascend", ParseAscend) }
