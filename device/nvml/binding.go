//go:build nvml && cgo && linux

package nvml

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
	"github.com/elasticps/elasticps/topology"
)

// required are the functions without which there is no list of devices.
var required = []string{
	"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
}

// binding is a library that is loaded and initialized.
type binding struct {
	nvml nvml.Interface
	// has says whether the library has a function. To call one that it has not would end
	// the process.
	has func(symbol string) bool
	// unload gives up the handle that has is answered with.
	unload func() error
}

// open loads the library. It is opened twice: the handle of this package answers which
// functions there are before the first of them is called.
func open(path string) (library, error) {
	handle := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := handle.Open(); err != nil {
		return nil, fmt.Errorf("nvml: %w: %w", ErrLibraryNotFound, err)
	}
	has := func(symbol string) bool { return handle.Lookup(symbol) == nil }
	for _, symbol := range required {
		if !has(symbol) {
			_ = handle.Close() // the missing function is the news
			return nil, &SymbolError{Library: path, Symbol: symbol}
		}
	}
	b := &binding{nvml: nvml.New(nvml.WithLibraryPath(path)), has: has, unload: handle.Close}
	if ret := b.nvml.Init(); ret != nvml.SUCCESS {
		_ = handle.Close() // likewise
		return nil, &CallError{Call: "nvmlInit", Code: int(ret)}
	}
	return b, nil
}

func (b *binding) close() error {
	if ret := b.nvml.Shutdown(); ret != nvml.SUCCESS {
		return &CallError{Call: "nvmlShutdown", Code: int(ret)}
	}
	return b.unload()
}

// devices lists all devices, by the order of their bus addresses, which is that of the
// library.
func (b *binding) devices(ctx context.Context) ([]device.Device, error) {
	count, ret := b.nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, &CallError{Call: "nvmlDeviceGetCount", Code: int(ret)}
	}
	list := make([]device.Device, count)
	handles := make([]nvml.Device, count)
	for i := range list {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("nvml: %w", err)
		}
		list[i] = device.Device{ID: fmt.Sprintf("nvidia-%d", i), Vendor: device.NVIDIA, Index: i}
		if handles[i], ret = b.nvml.DeviceGetHandleByIndex(i); ret != nvml.SUCCESS {
			list[i].Health, list[i].Fault = healthOf(ret)
			continue
		}
		b.identify(&list[i], handles[i])
		b.measure(&list[i], handles[i])
	}
	for i := range list {
		if list[i].Health.Usable() && handles[i] != nil {
			list[i].Links = append(b.links(handles[i], list), b.paths(i, handles, list)...)
		}
	}
	return list, nil
}

// healthOf judges a device by the code with which a call about it failed.
func healthOf(ret nvml.Return) (device.Health, string) {
	fault := meaning(int(ret))
	switch ret {
	case nvml.ERROR_GPU_IS_LOST:
		return device.Gone, fault
	case nvml.ERROR_RESET_REQUIRED:
		return device.Failed, fault
	}
	return device.HealthUnknown, fault
}

// figure returns what a function says, unknown if the library lacks it or it fails. A
// failure that condemns the device does so.
func figure[T any](b *binding, d *device.Device, symbol string, call func() (T, nvml.Return)) (T, bool) {
	var zero T
	if !b.has(symbol) {
		return zero, false
	}
	v, ret := call()
	if ret == nvml.ERROR_GPU_IS_LOST || ret == nvml.ERROR_RESET_REQUIRED {
		d.Health, d.Fault = healthOf(ret)
	}
	return v, ret == nvml.SUCCESS
}

func (b *binding) identify(d *device.Device, h nvml.Device) {
	if uuid, ok := figure(b, d, "nvmlDeviceGetUUID", h.GetUUID); ok {
		d.ID, d.UUID = uuid, uuid
	}
	d.Model, _ = figure(b, d, "nvmlDeviceGetName", h.GetName)
	if pci, ok := figure(b, d, "nvmlDeviceGetPciInfo_v3", h.GetPciInfo); ok {
		d.BusID = busID(pci)
	}
}

// busID returns the address in the form of device.Device.
func busID(pci nvml.PciInfo) string {
	text := make([]byte, 0, len(pci.BusId))
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return reading.BusID(string(text))
}

func (b *binding) measure(d *device.Device, h nvml.Device) {
	if m, ok := figure(b, d, "nvmlDeviceGetMemoryInfo", h.GetMemoryInfo); ok {
		d.MemoryBytes = reading.Bytes(device.Known(float64(m.Total)), 1)
		d.UsedBytes = reading.Bytes(device.Known(float64(m.Used)), 1)
	}
	if u, ok := figure(b, d, "nvmlDeviceGetUtilizationRates", h.GetUtilizationRates); ok {
		d.Utilization = reading.Fraction(device.Known(float64(u.Gpu)))
	}
	heat := func() (uint32, nvml.Return) { return h.GetTemperature(nvml.TEMPERATURE_GPU) }
	if c, ok := figure(b, d, "nvmlDeviceGetTemperature", heat); ok {
		d.Celsius = device.Known(float64(c))
	}
	if mw, ok := figure(b, d, "nvmlDeviceGetPowerUsage", h.GetPowerUsage); ok {
		d.Watts = device.Known(float64(mw) / 1000)
	}
	d.LinkBytesPerSecond = b.pcie(d, h)
	errors := func() (uint64, nvml.Return) {
		return h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	}
	n, ok := figure(b, d, "nvmlDeviceGetTotalEccErrors", errors)
	if ok {
		reading.MemoryErrors(d, device.Known(float64(n)), device.Figure[float64]{})
	}
}

// gigatransfers are those of a lane by the generation of PCIe.
var gigatransfers = [...]float64{1: 2.5, 2: 5, 3: 8, 4: 16, 5: 32, 6: 64}

// pcie returns the bandwidth of the link to the host in one direction.
func (b *binding) pcie(d *device.Device, h nvml.Device) device.Figure[float64] {
	generation, known := figure(b, d, "nvmlDeviceGetCurrPcieLinkGeneration", h.GetCurrPcieLinkGeneration)
	lanes, ok := figure(b, d, "nvmlDeviceGetCurrPcieLinkWidth", h.GetCurrPcieLinkWidth)
	if !known || !ok || generation < 1 || generation >= len(gigatransfers) {
		return device.Figure[float64]{}
	}
	return device.Known(topology.PCIeBytesPerSecond(gigatransfers[generation], lanes))
}

// links returns the NVLinks that are up, those to one peer together. A peer that is not
// among the devices is a switch.
func (b *binding) links(h nvml.Device, list []device.Device) []device.Link {
	if !b.has("nvmlDeviceGetNvLinkState") || !b.has("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
		return nil
	}
	perLane := b.linkSpeed(h)
	var links []device.Link
	for n := range nvml.NVLINK_MAX_LINKS {
		state, ret := h.GetNvLinkState(n)
		if ret == nvml.ERROR_INVALID_ARGUMENT {
			break // no link of this number, nor of a higher one
		}
		if ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		pci, ret := h.GetNvLinkRemotePciInfo(n)
		if ret != nvml.SUCCESS {
			continue
		}
		links = addLane(links, peer(busID(pci), list), perLane)
	}
	return links
}

// ancestors are what the way between two devices crosses, by what they have in common.
var ancestors = map[nvml.GpuTopologyLevel]topology.Kind{
	nvml.TOPOLOGY_INTERNAL: topology.KindBoard, nvml.TOPOLOGY_SINGLE: topology.KindSwitch, nvml.TOPOLOGY_MULTIPLE: topology.KindSwitches,
	nvml.TOPOLOGY_HOSTBRIDGE: topology.KindHostBridge, nvml.TOPOLOGY_NODE: topology.KindSocket, nvml.TOPOLOGY_SYSTEM: topology.KindNode,
}

// paths returns the ways over PCIe and sockets to the other devices.
func (b *binding) paths(i int, handles []nvml.Device, list []device.Device) []device.Link {
	if !b.has("nvmlDeviceGetTopologyCommonAncestor") {
		return nil
	}
	var links []device.Link
	for j, other := range handles {
		if j == i || other == nil {
			continue
		}
		level, ret := handles[i].GetTopologyCommonAncestor(other)
		if kind := ancestors[level]; ret == nvml.SUCCESS && kind != topology.KindUnknown {
			links = append(links, device.Link{Kind: kind, Peer: list[j].ID})
		}
	}
	return links
}

func peer(busID string, list []device.Device) string {
	for _, d := range list {
		if busID != "" && d.BusID == busID {
			return d.ID
		}
	}
	return ""
}

func addLane(links []device.Link, peer string, perLane device.Figure[float64]) []device.Link {
	for i := range links {
		if links[i].Peer == peer {
			links[i].Lanes++
			links[i].BytesPerSecond.Value += perLane.Value
			return links
		}
	}
	return append(links, device.Link{Kind: topology.KindNVLink, Peer: peer, Lanes: 1, BytesPerSecond: perLane})
}

// linkSpeed returns the bandwidth of one NVLink, which the library gives in units of
// 1,000,000 bytes per second as a 32-bit integer.
func (b *binding) linkSpeed(h nvml.Device) device.Figure[float64] {
	if !b.has("nvmlDeviceGetFieldValues") {
		return device.Figure[float64]{}
	}
	values := []nvml.FieldValue{{FieldId: nvml.FI_DEV_NVLINK_SPEED_MBPS_COMMON}}
	if h.GetFieldValues(values) != nvml.SUCCESS || values[0].NvmlReturn != uint32(nvml.SUCCESS) {
		return device.Figure[float64]{}
	}
	mb := binary.NativeEndian.Uint32(values[0].Value[:4])
	if mb == 0 {
		return device.Figure[float64]{}
	}
	return device.Known(float64(mb) * 1e6)
}
