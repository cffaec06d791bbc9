package sysfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
	"github.com/elasticps/elasticps/topology"
)

const (
	drm       = "sys/class/drm"
	amdVendor = "0x1002" // of the PCI register
)

// AMDGPUs is a provider of the AMD devices that the amdgpu driver has.
type AMDGPUs struct {
	files tree
}

var _ device.Provider = (*AMDGPUs)(nil)

// AMD returns a provider that reads the files of the amdgpu driver. It fails when Root is
// not a folder.
func AMD(c Config) (*AMDGPUs, error) {
	files, err := open(c)
	return &AMDGPUs{files}, err
}

func open(c Config) (tree, error) {
	root := cmp.Or(c.Root, "/")
	info, err := os.Stat(root)
	if err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	if err != nil {
		return tree{}, fmt.Errorf("sysfs: Root %q: %w", root, err)
	}
	return tree{os.DirFS(root)}, nil
}

// Source returns "amdgpu".
func (a *AMDGPUs) Source() string { return "amdgpu" }

// Devices reads the files. Devices are listed in the order of the compute driver, which is
// that of the visibility variables, and those that it does not have by the number of their
// card.
func (a *AMDGPUs) Devices(ctx context.Context) ([]device.Device, error) {
	cards, err := a.files.numbered(drm, "card")
	if err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	nodes, err := a.files.kfdNodes()
	if err != nil {
		return nil, err
	}
	var list []device.Device
	for _, c := range cards {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("sysfs: %w", err)
		}
		if vendor, _ := a.files.read(maxFileBytes, drm, c.name, "device", "vendor"); vendor != amdVendor {
			continue
		}
		d, err := a.files.card(path.Join(drm, c.name, "device"))
		if err != nil {
			return nil, err
		}
		d.ID = cmp.Or(d.BusID, "amd-"+c.name)
		list = append(list, d)
	}
	return arrange(list, nodes), nil
}

// card reads the folder of one device.
func (t tree) card(folder string) (device.Device, error) {
	d := device.Device{Vendor: device.AMD, Index: -1, BusID: t.slot(folder)}
	d.Model, _ = t.read(maxFileBytes, folder, "product_name")
	if id, ok := t.read(maxFileBytes, folder, "unique_id"); ok && id != "" {
		d.UUID = "GPU-" + strings.TrimPrefix(id, "0x") // as the runtime and ROCR_VISIBLE_DEVICES write it
	}
	var errs []error
	number := func(file string) device.Figure[float64] {
		v, err := t.number(folder, file)
		errs = append(errs, err)
		return v
	}
	d.Utilization = reading.Fraction(number("gpu_busy_percent"))
	d.MemoryBytes = reading.Bytes(number("mem_info_vram_total"), 1)
	d.UsedBytes = reading.Bytes(number("mem_info_vram_used"), 1)
	d.NUMANode = whole(number("numa_node")) // -1 where the host has one node only
	var err error
	d.Celsius, d.Watts, err = t.sensors(folder)
	errs = append(errs, err)
	d.LinkBytesPerSecond, err = t.pcie(folder)
	errs = append(errs, err)
	errs = append(errs, t.ras(&d, folder))
	return d, errors.Join(errs...)
}

// slot returns the bus address of the device.
func (t tree) slot(folder string) string {
	text, _ := t.read(maxFileBytes, folder, "uevent")
	for line := range strings.Lines(text) {
		if slot, ok := strings.CutPrefix(line, "PCI_SLOT_NAME="); ok {
			return reading.BusID(slot)
		}
	}
	return ""
}

// sensors returns temperature and power of the first sensor chip that has them. The
// kernel counts in thousandths of a degree and millionths of a watt.
func (t tree) sensors(folder string) (celsius, watts device.Figure[float64], err error) {
	chips, _ := t.numbered(path.Join(folder, "hwmon"), "hwmon") // none: nothing is known
	for _, c := range chips {
		chip := path.Join(folder, "hwmon", c.name)
		heat, heatErr := t.number(chip, "temp1_input")
		power, powerErr := t.number(chip, "power1_average")
		if !power.Known && powerErr == nil {
			power, powerErr = t.number(chip, "power1_input")
		}
		if err := errors.Join(heatErr, powerErr); err != nil {
			return celsius, watts, err
		}
		if heat.Known || power.Known {
			return scaled(heat, 1e-3), scaled(power, 1e-6), nil
		}
	}
	return celsius, watts, nil
}

// pcie returns the bandwidth of the link to the host in one direction, from a speed such as
// "16.0 GT/s PCIe" and a number of lanes.
func (t tree) pcie(folder string) (device.Figure[float64], error) {
	unknown := device.Figure[float64]{}
	speed, ok := t.read(maxFileBytes, folder, "current_link_speed")
	width, err := t.number(folder, "current_link_width")
	if !ok || err != nil || !width.Known {
		return unknown, err
	}
	rate, _, _ := strings.Cut(speed, " GT/s")
	c := reading.Cell{Source: "/" + path.Join(folder, "current_link_speed"), Line: 1, Field: "current_link_speed", Text: rate}
	v, err := c.Number("")
	if err != nil || !v.Known {
		return unknown, err
	}
	return device.Known(topology.PCIeBytesPerSecond(v.Value, int(width.Value))), nil
}

// ras judges the device by the memory errors since the driver was loaded: "ue: 0" and
// "ce: 0", uncorrected and corrected.
func (t tree) ras(d *device.Device, folder string) error {
	text, ok := t.read(maxFileBytes, folder, "ras/umc_err_count")
	if !ok {
		return nil
	}
	number := 0
	for line := range strings.Lines(text) {
		number++
		name, count, _ := strings.Cut(line, ":")
		c := reading.Cell{Source: "/" + path.Join(folder, "ras/umc_err_count"), Line: number, Field: name, Text: strings.TrimSpace(count)}
		v, err := c.Number("")
		if err != nil {
			return err
		}
		switch name {
		case "ue":
			reading.MemoryErrors(d, v, device.Figure[float64]{})
		case "ce":
			reading.MemoryErrors(d, device.Figure[float64]{}, v)
		}
	}
	return nil
}
