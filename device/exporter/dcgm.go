package exporter

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
)

const mib = 1 << 20

// ParseDCGM reads the page of a DCGM exporter. A slice of a divided device (MIG) is a device of
// its own, whose ID is that of the device and the number of the slice. Several lines
// about one device that differ in other labels, such as the pod, count once. The devices are
// listed in the order of the page.
func ParseDCGM(text string) ([]device.Device, error) {
	list, err := samples("dcgm", "DCGM_FI_", text)
	if err != nil {
		return nil, err
	}
	g, err := gather(list, dcgmIdentity, func(v float64) bool { return !dcgmBlank(v) })
	if err != nil {
		return nil, err
	}
	for i := range g.devices {
		g.values[i].dcgm(&g.devices[i])
	}
	return g.devices, nil
}

// dcgmIdentity returns the device that a line is about.
func dcgmIdentity(s sample) (device.Device, error) {
	gpu, uuid := s.label("gpu"), s.label("UUID", "uuid")
	d := device.Device{ID: uuid, Vendor: device.NVIDIA, Index: -1, UUID: uuid, Model: s.label("modelName"), BusID: reading.BusID(s.label("pci_bus_id"))}
	if gpu != "" {
		n, err := strconv.ParseUint(gpu, 10, 16)
		if err != nil {
			return d, s.Fault(`a label gpu with a number`)
		}
		d.Index = int(n)
		d.ID = cmp.Or(uuid, fmt.Sprintf("nvidia-%d", n))
	}
	if d.ID == "" {
		return d, s.Fault("a label gpu or UUID")
	}
	if slice := s.label("GPU_I_ID"); slice != "" {
		d.ID += "/" + slice
		d.Model += " " + s.label("GPU_I_PROFILE")
		d.UUID, d.BusID = "", "" // those of the whole device
	}
	return d, nil
}

// dcgmBlank reports whether a value is one of those that DCGM writes where it has none:
// blank, not found, not supported, not permitted, as 32-bit and 64-bit integers and as
// floating point numbers.
func dcgmBlank(v float64) bool {
	return v >= 0x7ffffff0 && v <= 0x7ffffff3 || v >= 0x7ffffffffffffff0 || v >= 1<<47 && v <= 1<<47+3
}

// dcgm takes the figures of one device.
func (v values) dcgm(d *device.Device) {
	d.Utilization = reading.Fraction(v["DCGM_FI_DEV_GPU_UTIL"])
	if active := v["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]; !d.Utilization.Known && active.Known {
		d.Utilization = reading.Fraction(device.Known(100 * active.Value))
	}
	d.Celsius, d.Watts = v["DCGM_FI_DEV_GPU_TEMP"], v["DCGM_FI_DEV_POWER_USAGE"]
	used, free := v["DCGM_FI_DEV_FB_USED"], v["DCGM_FI_DEV_FB_FREE"]
	total := v["DCGM_FI_DEV_FB_TOTAL"]
	if !total.Known && used.Known && free.Known {
		total = device.Known(used.Value + free.Value + v["DCGM_FI_DEV_FB_RESERVED"].Or(0))
	}
	d.UsedBytes, d.MemoryBytes = reading.Bytes(used, mib), reading.Bytes(total, mib)
	ecc, remap, xid := v["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"], v["DCGM_FI_DEV_ROW_REMAP_FAILURE"], v["DCGM_FI_DEV_XID_ERRORS"]
	reading.MemoryErrors(d, ecc, device.Figure[float64]{})
	switch {
	case d.Health == device.Failed:
	case remap.Value > 0:
		d.Health, d.Fault = device.Failed, "memory rows could not be remapped"
	case xid.Value > 0 && !ofApplication(xid.Value):
		d.Health, d.Fault = device.Failed, fmt.Sprintf("XID %.0f", xid.Value)
	case remap.Known || xid.Known:
		d.Health = device.Healthy
	}
}

// ofApplication reports whether an XID is the fault of a program and not of the device:
// illegal access and the like, or its preemptive end.
func ofApplication(xid float64) bool {
	switch xid {
	case 13, 31, 43, 45, 68, 109:
		return true
	}
	return false
}
