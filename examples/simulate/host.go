package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/smi"
	"github.com/elasticps/elasticps/device/sysfs"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/topology"
)

// thisHost places tasks on the devices of this host, or of a DGX-1V if it has none.
func thisHost(ctx context.Context, out io.Writer) error {
	providers, err := vendors()
	if err != nil {
		return err
	}
	list, err := inventory(ctx, providers)
	if !slices.ContainsFunc(list, func(d device.Device) bool { return d.Health.Usable() }) {
		if err != nil {
			fmt.Fprintln(out, err)
		}
		fmt.Fprintln(out, "no accelerator found here; what nvidia-smi prints on a DGX-1V is read instead")
		tool, err := dgx1()
		if err != nil {
			return err
		}
		if list, err = inventory(ctx, []device.Provider{tool}); err != nil {
			return err
		}
	}
	return placeOn(ctx, list, out)
}

// vendors are the providers that need neither cgo nor a library.
func vendors() ([]device.Provider, error) {
	nvidia, err1 := smi.NVIDIA(smi.Config{})
	ascend, err2 := smi.Ascend(smi.Config{})
	mthreads, err3 := smi.MooreThreads(smi.Config{})
	amd, err4 := sysfs.AMD(sysfs.Config{})
	return []device.Provider{nvidia, ascend, mthreads, amd}, errors.Join(err1, err2, err3, err4)
}

// inventory asks all of them once; the error says who did not answer.
func inventory(ctx context.Context, providers []device.Provider) ([]device.Device, error) {
	all, err := device.NewInventory(device.InventoryConfig{Providers: providers})
	if err != nil {
		return nil, err
	}
	return all.Refresh(ctx)
}

// placeOn is the way from devices to placements: HostsOf makes nodes and graphs of them, a scheduler
// that follows the graphs places tasks of 1, 2 and 4 devices until there is no room.
func placeOn(ctx context.Context, list []device.Device, out io.Writer) error {
	name, err := os.Hostname()
	if err != nil {
		name = "host"
	}
	hosts, err := elastic.HostsOf(sched.Node{Name: name, CPU: sched.Milli(runtime.NumCPU()) * sched.Whole}, list)
	if err != nil {
		return err
	}
	config := sched.Config{}
	graphs := make(map[string]*topology.Graph)
	byName := make(map[string]elastic.Host)
	for _, h := range hosts {
		config.Nodes = append(config.Nodes, h.Node)
		graphs[h.Node.Name], byName[h.Node.Name] = h.Graph, h
		fmt.Fprintf(out, "node %s: %d devices %s of %s\n", h.Node.Name, h.Node.Devices, h.Node.Model, h.Node.Vendor)
	}
	config.PickDevices = sched.ByTopology(graphs)
	node, err := actor.Start(ctx, actor.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	scheduler, err := elastic.StartScheduler(ctx, node, elastic.SchedulerConfig{Cluster: config})
	if err != nil {
		return err
	}
	defer scheduler.Close()
	for i, refused := 0, 0; refused < 3; i++ {
		n := []int{1, 2, 4}[i%3]
		p, err := scheduler.Place(ctx, sched.Task{ID: fmt.Sprint("task-", i), Request: sched.Request{Devices: n}})
		switch {
		case errors.Is(err, sched.ErrNoRoom), errors.Is(err, sched.ErrInfeasible):
			refused++
			continue
		case err != nil:
			return err
		}
		refused = 0
		if err := printPlacement(out, byName[p.Node], p); err != nil {
			return err
		}
	}
	return nil
}

// variables are those by which a process of a vendor sees only its own devices.
var variables = map[device.Vendor]string{
	device.NVIDIA: device.CUDAVisibleDevices, device.Ascend: device.AscendVisibleDevices,
}

// printPlacement says which devices a task has, and how they are linked.
func printPlacement(out io.Writer, h elastic.Host, p sched.Placement) error {
	accelerators := h.Graph.Accelerators()
	var (
		own   []device.Device
		ids   []string
		links []string
		count = make(map[string]int)
	)
	for _, i := range p.Devices.List() {
		own, ids = append(own, h.Devices[i]), append(ids, h.Devices[i].ID)
		for _, j := range p.Devices.List() {
			if link := h.Graph.Link(accelerators[i], accelerators[j]); i < j {
				count[fmt.Sprintf("%v×%d", link.Kind, max(1, link.Lanes))]++
			}
		}
	}
	for link, n := range count {
		links = append(links, fmt.Sprintf("%d of %s", n, link))
	}
	slices.Sort(links)
	fmt.Fprintf(out, "%s on %s: %s", p.Task, p.Node, strings.Join(ids, " "))
	if len(links) > 0 {
		fmt.Fprintf(out, " (links: %s)", strings.Join(links, ", "))
	}
	if variable := variables[own[0].Vendor]; variable != "" {
		value, err := device.FormatVisibility(variable, h.Devices, own)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, " %s=%s", variable, value)
	}
	fmt.Fprintln(out)
	return nil
}

// What nvidia-smi prints on a DGX-1V: eight devices, six lanes of NVLink each.
const (
	dgx1List = `index, name, memory.total [MiB], pci.bus_id
0, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:06:00.0
1, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:07:00.0
2, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:0A:00.0
3, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:0B:00.0
4, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:85:00.0
5, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:86:00.0
6, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:89:00.0
7, Tesla V100-SXM2-32GB, 32510 MiB, 00000000:8A:00.0
`
	dgx1Links = `	GPU0	GPU1	GPU2	GPU3	GPU4	GPU5	GPU6	GPU7
GPU0	 X 	NV1	NV1	NV2	NV2	SYS	SYS	SYS
GPU1	NV1	 X 	NV2	NV1	SYS	NV2	SYS	SYS
GPU2	NV1	NV2	 X 	NV2	SYS	SYS	NV1	SYS
GPU3	NV2	NV1	NV2	 X 	SYS	SYS	SYS	NV1
GPU4	NV2	SYS	SYS	SYS	 X 	NV1	NV1	NV2
GPU5	SYS	NV2	SYS	SYS	NV1	 X 	NV2	NV1
GPU6	SYS	SYS	NV1	SYS	NV1	NV2	 X 	NV2
GPU7	SYS	SYS	SYS	NV1	NV2	NV1	NV2	 X 
`
)

// dgx1 is a provider that reads these texts.
func dgx1() (device.Provider, error) {
	return smi.NVIDIA(smi.Config{Run: func(_ context.Context, _ int, _ string, args ...string) (smi.Output, error) {
		if slices.Contains(args, "topo") {
			return smi.Output{Stdout: dgx1Links}, nil
		}
		return smi.Output{Stdout: dgx1List}, nil
	}})
}
