package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

func TestDay(t *testing.T) {
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, run([]string{"-devices", "320", "-time", "2h", "-html", file}, &out, io.Discard))
	for _, want := range []string{"320 devices", "elastic", "fragmentation", "of which wasted", "The world:"} {
		require.Contains(t, out.String(), want)
	}
	report, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 4*320, strings.Count(string(report), "<rect "), "every device, for each way")
	require.Equal(t, 4*4, strings.Count(string(report), "<polyline "))
	for _, want := range []string{"H800, 16 nodes", "T4, 4 nodes", ">2 h</text>", ">100</text>"} {
		require.Contains(t, string(report), want)
	}
	require.True(t, strings.HasSuffix(strings.TrimSpace(string(report)), "</html>"))
}

// TestHost: from the text of a tool to tasks on devices that are well linked.
func TestHost(t *testing.T) {
	tool, err := dgx1()
	require.NoError(t, err)
	list, err := inventory(t.Context(), []device.Provider{tool})
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, placeOn(t.Context(), list, &out))
	for _, want := range []string{
		": 8 devices Tesla V100-SXM2-32GB of nvidia", "nvidia-0 CUDA_VISIBLE_DEVICES=0\n",
		"nvidia-2 nvidia-3 (links: 1 of NVLink×2) CUDA_VISIBLE_DEVICES=2,3\n",
		"nvidia-4 nvidia-5 nvidia-6 nvidia-7 (links: 3 of NVLink×1, 3 of NVLink×2) CUDA_VISIBLE_DEVICES=4,5,6,7\n", "nvidia-1 CUDA_VISIBLE_DEVICES=1\n",
	} {
		require.Contains(t, out.String(), want)
	}
	out.Reset()
	require.NoError(t, run([]string{"-host"}, &out, io.Discard))
	require.Contains(t, out.String(), "task-0 on ", "whatever devices there are here")
}

func TestOpenb(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	require.ErrorIs(t, run([]string{"-openb", folder}, io.Discard, io.Discard), os.ErrNotExist)
	write("openb_node_list_gpu_node.csv", "sn,cpu_milli,memory_mib,gpu,model\na,96000,1000,8,G\n")
	require.ErrorIs(t, run([]string{"-openb", folder}, io.Discard, io.Discard), os.ErrNotExist)
	write("openb_pod_list_tiny.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1,1,1000\nq,1000,1,1,500\n")
	var out bytes.Buffer
	require.NoError(t, run([]string{"-openb", folder, "-seeds", "1"}, &out, io.Discard))
	require.Contains(t, out.String(), "tiny")
	require.Contains(t, out.String(), "dot-product")
}

func TestFaultyFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"-devices is 100":   {"-devices", "100"},
		"-load is NaN":      {"-load", "NaN"},
		"-seeds is 0":       {"-seeds", "0"},
		`"x" is not`:        {"x"},
		"-time is -1h0m0s,": {"-devices", "320", "-time", "-1h"},
		"/does/not/exist/":  {"-html", "/does/not/exist/report.html"},
	} {
		require.ErrorContains(t, run(args, io.Discard, io.Discard), want)
	}
}
