package exporter

import (
	"fmt"
	"strconv"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
)

// ParseAscend reads the page of an npu-exporter. The labels have had several spellings; all of
// them are known. The devices are listed in the order of the page.
func ParseAscend(text string) ([]device.Device, error) {
	list, err := samples("npu-exporter", "npu_chip_", text)
	if err != nil {
		return nil, err
	}
	g, err := gather(list, ascendIdentity, func(v float64) bool { return v >= 0 && v < 0xffffffff })
	if err != nil {
		return nil, err
	}
	for i := range g.devices {
		g.values[i].ascend(&g.devices[i])
	}
	return g.devices, nil
}

// ascendIdentity returns the device that a line is about.
func ascendIdentity(s sample) (device.Device, error) {
	id := s.label("id", "npuID", "npu_id")
	n, err := strconv.ParseUint(id, 10, 16)
	if err != nil {
		return device.Device{}, s.Fault("a label id with a number")
	}
	return device.Device{
		ID: fmt.Sprintf("ascend-%d", n), Vendor: device.Ascend, Index: int(n),
		Model: s.label("model_name", "modelName", "name"),
		UUID:  s.label("vdie_id", "vdieID", "uuid"),
		BusID: reading.BusID(s.label("pcie_bus_info", "pcieBusInfo", "pcie")),
	}, nil
}

// ascend takes the figures of one device.
func (v values) ascend(d *device.Device) {
	d.Utilization = reading.Fraction(v["npu_chip_info_utilization"])
	if !d.Utilization.Known {
		d.Utilization = reading.Fraction(v["npu_chip_info_overall_utilization"])
	}
	d.Celsius, d.Watts = v["npu_chip_info_temperature"], v["npu_chip_info_power"]
	used, total := v["npu_chip_info_hbm_used_memory"], v["npu_chip_info_hbm_total_memory"]
	if total.Value <= 0 { // no memory of this kind
		used, total = v["npu_chip_info_used_memory"], v["npu_chip_info_total_memory"]
	}
	d.UsedBytes, d.MemoryBytes = reading.Bytes(used, mib), reading.Bytes(total, mib)
	health, code, link := v["npu_chip_info_health_status"], v["npu_chip_info_error_code"], v["npu_chip_info_link_status"]
	switch {
	case health.Known && health.Value == 0:
		d.Health, d.Fault = device.Failed, "unhealthy"
		if code.Value > 0 {
			d.Fault = fmt.Sprintf("error code %.0f", code.Value)
		}
	case link.Known && link.Value == 0:
		d.Health, d.Fault = device.Degraded, "network link is down"
	case health.Known:
		d.Health = device.Healthy
	}
}
