package topology_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

// dumped has the shape of what NCCL writes: two devices on NVSwitch and one with a direct
// link to the first.
const dumped = `<?xml version="1.0"?>
<system version="1">
  <cpu numaid="1" affinity="ff" arch="x86_64">
    <pci busid="0000:B0:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:B1:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:d0:00.0" count="9" tclass="0x068000"/>
          <nvlink target="0000:d1:00.0" count="9" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:b8:00.0" class="0x040300" link_speed="" link_width="0">
        <pci busid="0000:b9:00.0" class="0x120000" link_speed="Unknown speed" link_width="0">
          <gpu dev="1" sm="90"><nvlink target="0000:d0:00.0" count="12" tclass="0x068000"/></gpu>
        </pci>
      </pci>
    </pci>
    <pci busid="0000:c1:00.0" class="0x020700" link_speed="5 GT/s" link_width="8">
      <nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic>
    </pci>
  </cpu>
  <cpu numaid="-1">
    <pci busid="0000:e1:00.0" class="0x030200">
      <gpu dev="2" sm="60"><nvlink target="0000:e2:00.0" count="2" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:e2:00.0" class="0x030200">
      <gpu dev="3" sm="60"><nvlink target="0000:e1:00.0" count="2" tclass="0x030200"/></gpu>
    </pci>
  </cpu>
</system>`

func TestParseNCCL(t *testing.T) {
	g, err := topology.ParseNCCL(strings.NewReader(dumped))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 3, 4}, g.Accelerators())
	require.Equal(t, topology.Device{Name: "0000:b1:00.0", NUMA: 1, CPUs: "ff"}, g.Devices()[0])
	require.Equal(t, topology.Device{Name: "0000:c1:00.0", NIC: true, NUMA: 1, CPUs: "ff"}, g.Devices()[2])

	require.Equal(t, topology.Link{Kind: topology.KindNVLink, Lanes: 12, Path: topology.KindSwitches, BytesPerSecond: 12 * 25e9}, g.Link(0, 1))
	require.Equal(t, topology.Link{Kind: topology.KindNVLink, Lanes: 2, Path: topology.KindHostBridge, BytesPerSecond: 2 * 20e9}, g.Link(3, 4))
	require.Equal(t, topology.KindHostBridge, g.Link(0, 2).Kind)
	require.InDelta(t, 4e9, g.Link(0, 2).BytesPerSecond, 1, "the slower slot: 8 lanes of 5 GT/s with 8b/10b")
	require.Equal(t, topology.NewLink(topology.KindNode, 0), g.Link(0, 3))
}

// TestParseNCCLLaneByCapability: a link of a later generation carries more.
func TestParseNCCLLaneByCapability(t *testing.T) {
	for capability, want := range map[int]float64{0: 25e9, 60: 20e9, 70: 25e9, 80: 25e9, 86: 14.0625e9, 90: 25e9, 100: 50e9} {
		text := "<system><cpu>"
		for _, ends := range []string{"ab", "ba"} {
			text += fmt.Sprintf("<pci busid=%q class=\"0x030200\"><gpu sm=\"%d\"><nvlink target=%q count=\"3\"/></gpu></pci>", ends[:1], capability, ends[1:])
		}
		g, err := topology.ParseNCCL(strings.NewReader(text + "</cpu></system>"))
		require.NoError(t, err)
		require.InDelta(t, 3*want, g.Link(0, 1).Bandwidth(), 1, "%d", capability)
	}
}

func TestParseNCCLWithoutDevices(t *testing.T) {
	g, err := topology.ParseNCCL(strings.NewReader(`<system><cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400"/></cpu></system>`))
	require.NoError(t, err)
	require.Empty(t, g.Devices())
	_, err = g.Choose(nil, 1)
	require.ErrorIs(t, err, topology.ErrNoRoom)
}

func TestParseNCCLRefuses(t *testing.T) {
	gpu := func(inner string) string {
		return "<system>\n<cpu numaid=\"0\">\n<pci busid=\"0\" class=\"0x030200\">" + inner + "</pci></cpu></system>"
	}
	for _, c := range []struct {
		text  string
		line  int
		field string
		want  string
	}{
		{"", 1, "system", "no element"},
		{"no xml", 1, "system", "no element"},
		{"<graphs/>", 1, "graphs", "first element must be system"},
		{"<system>\n<cpu>", 2, "element", "unexpected EOF"},
		{"<system>\n<cpu numaid=\"x\"/></system>", 2, "numaid", "\"x\" is no number from -1 to 65535"},
		{"<system>\n<cpu numaid=\"-2\"/></system>", 2, "numaid", "no number"},
		{"<system>\n\n<pci class=\"0x030200\"/></system>", 3, "busid", "has none"},
		{"<system>\n<pci busid=\"1\" link_speed=\"-1 GT/s\" link_width=\"16\"/></system>", 2, "link_speed", "0 to 1024 GT/s"},
		{"<system>\n<pci busid=\"1\" link_speed=\"NaN\" link_width=\"16\"/></system>", 2, "link_speed", "0 to 1024 GT/s"},
		{"<system>\n<pci busid=\"1\" link_speed=\"8 GT/s\" link_width=\"65\"/></system>", 2, "link_width", "0 to 64"},
		{"<system>\n<gpu dev=\"0\"/></system>", 2, "gpu", "outside of every pci element"},
		{gpu(`<gpu sm="new"/>`), 3, "sm", "no number"},
		{gpu(`<gpu><nvlink count="2"/></gpu>`), 3, "target", "has none"},
		{gpu(`<gpu><nvlink target="1" count="37"/></gpu>`), 3, "count", "37 links, limit 36"},
		{gpu(`<gpu><nvlink target="1" count="-1"/></gpu>`), 3, "count", "-1 links"},
		{gpu(`<pci busid="0" class="0x020000"/>`), 3, "busid", "listed twice"},
		{"<system>" + strings.Repeat("<pci busid=\"1\">", 64), 1, "pci", "64 within each other"},
		{"<system>" + strings.Repeat("<cpu/>", 1<<14), 1, "cpu", "more than 16384 elements"},
	} {
		_, err := topology.ParseNCCL(strings.NewReader(c.text))
		var parse *topology.ParseError
		require.ErrorAs(t, err, &parse, c.want)
		require.Equal(t, c.line, parse.Line, c.want)
		require.Equal(t, c.field, parse.Field, c.want)
		require.ErrorContains(t, err, c.want)
	}
}

func FuzzParseNCCL(f *testing.F) {
	f.Add(dumped)
	f.Add(`<system><cpu numaid="0"><pci busid="1" class="0x030200" link_speed="8 GT/s" link_width="16"/></cpu></system>`)
	f.Add(`<system><pci busid="1"><xgmi target="2" count="3"/></pci></system>`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := topology.ParseNCCL(strings.NewReader(text))
		requireSound(t, g, err)
	})
}

// given opens a file of the folder that ELASTICPS_TOPOLOGY names: topology files of Azure
// (azhpc-images, topology/ndv4-topo.xml) and AWS (aws-ofi-nccl, topology/p4d-24xl-topo.xml),
// and the number of NVLinks between the devices of a DGX-1 with V100 as CSV.
func given(t *testing.T, name string) string {
	folder := os.Getenv("ELASTICPS_TOPOLOGY")
	if folder == "" {
		t.Skip("ELASTICPS_TOPOLOGY names no folder with " + name)
	}
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return string(text)
}

func TestGivenAzureNDv4(t *testing.T) {
	g, err := topology.ParseNCCL(strings.NewReader(given(t, "ndv4-topo.xml")))
	require.NoError(t, err)
	require.Equal(t, []int{0, 2, 4, 6, 8, 10, 12, 14}, g.Accelerators())
	require.Equal(t, topology.KindSwitch, g.Link(0, 2).Kind)
	require.Equal(t, topology.KindNode, g.Link(0, 4).Kind)
	require.InDelta(t, 31.5e9, g.Link(0, 2).BytesPerSecond, 0.1e9)
	require.Equal(t, 3, g.Devices()[12].NUMA)
	pair, err := g.Choose([]int{0, 4, 6, 8}, 2)
	require.NoError(t, err)
	require.Equal(t, []int{4, 6}, pair)
	nic, ok := g.NearestNIC(6)
	require.True(t, ok)
	require.Equal(t, 5, nic)
}

func TestGivenAWSP4d(t *testing.T) {
	g, err := topology.ParseNCCL(strings.NewReader(given(t, "p4d-24xl-topo.xml")))
	require.NoError(t, err)
	gpus := g.Accelerators()
	require.Len(t, gpus, 8)
	require.Len(t, g.Devices(), 12)
	require.Equal(t, topology.KindSwitch, g.Link(gpus[0], gpus[1]).Kind)
	require.Equal(t, topology.KindHostBridge, g.Link(gpus[0], gpus[2]).Kind)
	require.Equal(t, topology.KindNode, g.Link(gpus[0], gpus[4]).Kind)
	require.InDelta(t, 15.75e9, g.Link(gpus[0], gpus[1]).BytesPerSecond, 0.01e9)
	four, err := g.Choose(gpus[1:], 4)
	require.NoError(t, err)
	require.Equal(t, gpus[4:], four, "the socket that is whole")
}

func TestGivenDGX1V(t *testing.T) {
	for i, line := range strings.Fields(given(t, "dgx1-volta-nvlink-matrix.csv")) {
		for j, cell := range strings.Split(line, ",") {
			lanes, err := strconv.Atoi(cell)
			require.NoError(t, err)
			require.Equal(t, lanes, voltaLanes[i][j])
		}
	}
}
