package elastic_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/sim"
	"github.com/elasticps/elasticps/device/smi"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/topology"
)

// What nvidia-smi prints about four devices of which 0 and 2, and 1 and 3 are linked.
const (
	crossedList = "index, uuid, name, pci.bus_id\n" +
		"0, GPU-a, A100, 00000000:01:00.0\n1, GPU-b, A100, 00000000:02:00.0\n" +
		"2, GPU-c, A100, 00000000:03:00.0\n3, GPU-d, A100, 00000000:04:00.0\n"
	crossedMatrix = "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tSYS\tNV4\tSYS\nGPU1\tSYS\tX\tSYS\tNV4\n" +
		"GPU2\tNV4\tSYS\tX\tSYS\nGPU3\tSYS\tNV4\tSYS\tX\n"
)

// TestLinksReachTheScheduler: from the text of the vendor's tool through the inventory to the
// devices that a task gets.
func TestLinksReachTheScheduler(t *testing.T) {
	tool, err := smi.NVIDIA(smi.Config{Run: func(_ context.Context, _ int, _ string, args ...string) (smi.Output, error) {
		if slices.Contains(args, "topo") {
			return smi.Output{Stdout: crossedMatrix}, nil
		}
		return smi.Output{Stdout: crossedList}, nil
	}})
	require.NoError(t, err)
	inventory, err := device.NewInventory(device.InventoryConfig{Providers: []device.Provider{tool}})
	require.NoError(t, err)
	list, err := inventory.Refresh(t.Context())
	require.NoError(t, err)
	hosts, err := elastic.HostsOf(sched.Node{Name: "n", CPU: 64_000, MemoryBytes: 1 << 40}, list)
	require.NoError(t, err)
	require.Len(t, hosts, 1)
	require.Equal(t, sched.Node{Name: "n", CPU: 64_000, MemoryBytes: 1 << 40, Devices: 4, Model: "A100", Vendor: "nvidia"}, hosts[0].Node)
	c, err := sched.New(sched.Config{
		Nodes: []sched.Node{hosts[0].Node}, PickDevices: sched.ByTopology(map[string]*topology.Graph{"n": hosts[0].Graph}),
	})
	require.NoError(t, err)
	for _, want := range [][]string{{"GPU-a", "GPU-c"}, {"GPU-b", "GPU-d"}} {
		p, err := c.Place(sched.Task{ID: want[0], Request: sched.Request{Devices: 2}})
		require.NoError(t, err)
		var got []string
		for _, i := range p.Devices.List() {
			got = append(got, hosts[0].Devices[i].ID)
		}
		require.Equal(t, want, got)
	}
}

func TestHostsOf(t *testing.T) {
	host, err := sim.New(sim.Config{Devices: []sim.Spec{{Vendor: device.NVIDIA, Count: 3}, {Vendor: device.Ascend, Count: 4}}})
	require.NoError(t, err)
	require.NoError(t, host.Inject("nvidia-1", sim.ECC))
	list, err := host.Devices(t.Context())
	require.NoError(t, err)
	list = append(list, device.Device{ID: "cpu", Vendor: device.CPU})
	node := sched.Node{Name: "n", CPU: 100_001, MemoryBytes: 1<<40 + 1, Domains: []string{"rack"}}
	hosts, err := elastic.HostsOf(node, list)
	require.NoError(t, err)
	require.Len(t, hosts, 2)
	require.Equal(t, "n/H100", hosts[0].Node.Name)
	require.Equal(t, []int{2, 4}, []int{hosts[0].Node.Devices, hosts[1].Node.Devices})
	require.Equal(t, "nvidia-2", hosts[0].Devices[1].ID, "without the one that has failed")
	require.Equal(t, topology.KindNVLink, hosts[0].Graph.Link(0, 1).Kind)
	require.Equal(t, node.CPU, hosts[0].Node.CPU+hosts[1].Node.CPU, "nothing is lost")
	require.Equal(t, node.MemoryBytes, hosts[0].Node.MemoryBytes+hosts[1].Node.MemoryBytes)
	require.EqualValues(t, 33_333, hosts[0].Node.CPU)
	_, err = sched.New(sched.Config{Nodes: []sched.Node{hosts[0].Node, hosts[1].Node}, Levels: []string{"rack"}})
	require.NoError(t, err)

	none, err := elastic.HostsOf(node, nil)
	require.NoError(t, err)
	require.Equal(t, node, none[0].Node)
	many := make([]device.Device, 17)
	for i := range many {
		many[i] = device.Device{ID: string(rune('a' + i)), Vendor: device.AMD}
	}
	_, err = elastic.HostsOf(node, many)
	require.ErrorContains(t, err, `17 devices of model "amd": want at most 16`)
	_, err = elastic.HostsOf(node, []device.Device{{Vendor: device.AMD}})
	require.ErrorIs(t, err, topology.ErrInvalid)
}
