package topology_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

const (
	fourA100 = "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n" +
		"GPU0\t X \tNV12\tNODE\tNODE\tPIX\t0-31,64-95\t0\t\tN/A\n" +
		"GPU1\tNV12\t X \tNODE\tNODE\tPHB\t0-31,64-95\t0\t\tN/A\n" +
		"GPU2\tNODE\tNODE\t X \tPXB\tSYS\t32-63\t1\t\tN/A\n" +
		"GPU3\tNODE\tNODE\tPXB\t X \tSYS\t32-63\t1\t\tN/A\n" +
		"mlx5_0\tPIX\tPHB\tSYS\tSYS\t X \t\t\t\t\n\n" +
		"Legend:\n\n  X    = Self\n  SYS  = somewhere else\n  NV#  = some of them\n"

	eightAscend = `           NPU0       NPU1       NPU2       NPU3       CPU Affinity
NPU0       X          HCCS       HCCS       SIO        144-167
NPU1       HCCS       X          PIX        HCCS_SW    144-167
NPU2       HCCS       PIX        X          UB         96-119
NPU3       SIO        HCCS_SW    UB         X          96-119

Legend:

  X    = Self
  HCCS = Ascend's own
`
	threeMoore = `mthreads-gmi:2.4.1        Driver Version:5.1.0-server
        GPU0    GPU1    GPU2    CPU Affinity  NUMA Affinity
GPU0    X       MT2     SYS     0-2324-47     N/A
GPU1    MT2     X       N/A     0-23
GPU2    SYS     N/A     X
`
)

func TestParseMatrixNVIDIA(t *testing.T) {
	g, err := topology.ParseMatrix(strings.NewReader(fourA100))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3}, g.Accelerators())
	require.Equal(t, topology.Device{Name: "GPU2", NUMA: 1, CPUs: "32-63"}, g.Devices()[2])
	require.Equal(t, topology.Device{Name: "mlx5_0", NIC: true, NUMA: topology.Unknown}, g.Devices()[4])
	require.Equal(t, topology.NewLink(topology.KindNVLink, 12), g.Link(0, 1))
	require.InDelta(t, 300e9, g.Link(0, 1).Bandwidth(), 1)
	require.Equal(t, topology.KindSame, g.Link(2, 2).Kind)
	for _, c := range []struct {
		i, j int
		want topology.Kind
	}{{0, 2, topology.KindSocket}, {2, 3, topology.KindSwitches}, {0, 4, topology.KindSwitch}, {1, 4, topology.KindHostBridge}, {2, 4, topology.KindNode}} {
		require.Equal(t, c.want, g.Link(c.i, c.j).Kind)
		require.Equal(t, g.Link(c.i, c.j), g.Link(c.j, c.i))
	}
	nic, ok := g.NearestNIC(3)
	require.True(t, ok)
	require.Equal(t, 4, nic)
	pair, err := g.Choose(g.Accelerators(), 2)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, pair)
}

func TestParseMatrixAscend(t *testing.T) {
	g, err := topology.ParseMatrix(strings.NewReader(eightAscend))
	require.NoError(t, err)
	require.Equal(t, "144-167", g.Devices()[1].CPUs)
	require.Equal(t, topology.Unknown, g.Devices()[1].NUMA)
	require.Equal(t, topology.NewLink(topology.KindHCCS, 1), g.Link(0, 1))
	require.Equal(t, topology.KindSame, g.Link(0, 3).Kind)
	require.Equal(t, topology.KindSwitch, g.Link(1, 2).Kind)
	require.Equal(t, topology.KindHCCS, g.Link(1, 3).Kind)
	require.Equal(t, topology.KindHCCS, g.Link(2, 3).Kind)
	_, ok := g.NearestNIC(0)
	require.False(t, ok)
}

// TestParseMatrixMooreThreads: columns beside the matrix run into each other, or are missing.
func TestParseMatrixMooreThreads(t *testing.T) {
	g, err := topology.ParseMatrix(strings.NewReader(threeMoore))
	require.NoError(t, err)
	require.Equal(t, topology.NewLink(topology.KindMTLink, 2), g.Link(0, 1))
	require.Equal(t, topology.KindUnknown, g.Link(1, 2).Kind)
	require.Zero(t, g.Link(1, 2).Score())
	require.Empty(t, g.Devices()[2].CPUs)
}

// TestParseMatrixOddOnes: words of tools to come are unknown, and a link that one end
// does not see counts as the weaker.
func TestParseMatrixOddOnes(t *testing.T) {
	g, err := topology.ParseMatrix(strings.NewReader("GPU0 CPU Affinity\nGPU0 X 0-7\n"))
	require.NoError(t, err)
	require.Len(t, g.Devices(), 1)

	g, err = topology.ParseMatrix(strings.NewReader("GPU0 GPU1\r\nGPU0 X WARP\r\nGPU1 WARP X\r\n"))
	require.NoError(t, err)
	require.Equal(t, topology.Link{}, g.Link(0, 1))

	g, err = topology.ParseMatrix(strings.NewReader("GPU0 GPU1\nGPU0 X NV4\nGPU1 SOC X\n"))
	require.NoError(t, err)
	require.Equal(t, topology.KindNode, g.Link(0, 1).Kind)
	require.Equal(t, g.Link(0, 1), g.Link(1, 0))
}

func TestParseMatrixRefuses(t *testing.T) {
	for _, c := range []struct {
		text  string
		line  int
		field string
		want  string
	}{
		{"", 0, "header", "no line begins with the name of an accelerator"},
		{"No devices were found\n", 0, "header", "no line"},
		{"GPU0 GPU1\nGPU0 X\n", 2, "GPU1", "ends after 1 of 2 columns"},
		{"GPU0 GPU1\nGPU0 X NV1\n", 0, "GPU1", "no row of this device"},
		{"GPU0 GPU1\nGPU0 X NV1\n\nGPU2 NV1 X\n", 4, "GPU2", "no device of this name"},
		{"GPU0 GPU1\nGPU0 X NV1\nGPU0 X NV1\n", 3, "GPU0", "second row"},
		{"GPU0 GPU1\nGPU0 X NV\nGPU1 NV X\n", 2, "GPU1", "\"NV\" has no number of links from 1 to 36"},
		{"GPU0 GPU1\nGPU0 X NV0\nGPU1 NV0 X\n", 2, "GPU1", "1 to 36"},
		{"GPU0 GPU1\nGPU0 X NV37\nGPU1 NV37 X\n", 2, "GPU1", "1 to 36"},
		{"GPU0 GPU1\nGPU0 X MT99999999999999999999\n", 2, "GPU1", "1 to 36"},
		{"GPU0 GPU1\nGPU0 X X\nGPU1 NV1 X\n", 2, "GPU1", "X is for the device itself"},
		{"GPU0 GPU1\nGPU0 SYS SYS\nGPU1 NV1 X\n", 2, "GPU0", "X is for the device itself"},
		{"GPU0 GPU0\nGPU0 X X\n", 2, "GPU0", "X is for"},
		{"GPU0 " + strings.Repeat("mlx5_0 ", topology.MaxDevices), 1, "GPU0", "257 devices, limit 256"},
		{strings.Repeat(" ", topology.MaxTextBytes+1), 0, "text", "longer than 4194304 bytes"},
	} {
		_, err := topology.ParseMatrix(strings.NewReader(c.text))
		var parse *topology.ParseError
		require.ErrorAs(t, err, &parse, c.want)
		require.Equal(t, c.line, parse.Line, c.want)
		require.Equal(t, c.field, parse.Field)
		require.ErrorContains(t, err, c.want)
	}
}

func FuzzParseMatrix(f *testing.F) {
	for _, text := range []string{fourA100, eightAscend, threeMoore, "GPU0 GPU1\nGPU0 X NV4\nGPU1 SOC X\n", "GPU0 GPU1\nGPU0 X NV\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := topology.ParseMatrix(strings.NewReader(text))
		requireSound(t, g, err)
	})
}

// requireSound: either an error with its place, or a graph that can be used.
func requireSound(t *testing.T, g *topology.Graph, err error) {
	if err != nil {
		var parse *topology.ParseError
		require.True(t, errors.As(err, &parse), "%v", err)
		return
	}
	n := len(g.Devices())
	for i := range n {
		for j := range n {
			require.Equal(t, g.Link(i, j), g.Link(j, i))
		}
	}
	free := g.Accelerators()
	for k := 1; k <= min(len(free), 4); k++ {
		set, err := g.Choose(free, k)
		require.NoError(t, err)
		require.Len(t, set, k)
	}
}
