package smi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
)

// nvidiaQuery are the columns that are asked for. All of them have been there for ten
// years; a driver that lacks one says so, and the columns are told apart by their names.
const nvidiaQuery = "index,uuid,name,pci.bus_id,memory.total,memory.used,utilization.gpu," +
	"temperature.gpu,power.draw,ecc.errors.uncorrected.volatile.total"

const mib = 1 << 20

// nvidiaLost begins the line about a device that the driver cannot reach. What follows
// differs by version: "GPU 0000:04:00.0: Unknown Error", "GPU3: 0000:04:00.0: GPU is lost".
const nvidiaLost = "Unable to determine the device handle for "

// ParseNVIDIA reads the table that nvidia-smi prints with --query-gpu and --format=csv, with or
// without nounits, any columns in any order as long as index is among them. Columns that
// it does not know are left out.
func ParseNVIDIA(text string) ([]device.Device, error) {
	p := nvidiaText{source: "nvidia-smi"}
	for line := range strings.Lines(text) {
		if err := p.line(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	if p.columns == nil && !p.none && !p.found {
		return nil, p.cell("header", "").Fault("the names of the columns, index among them")
	}
	return p.devices, nil
}

// parseNVIDIA reads both outputs: the lines about lost devices may stand in either, and
// come with any exit code.
func parseNVIDIA(o Output) ([]device.Device, error) {
	lost := nvidiaText{source: "nvidia-smi"}
	for line := range strings.Lines(o.Stderr) {
		lost.lostDevice(strings.TrimSpace(line))
	}
	list, err := ParseNVIDIA(o.Stdout)
	if err == nil {
		for _, d := range list {
			lost.found = lost.found || d.Health == device.Gone
		}
		list = append(list, lost.devices...)
	}
	if o.ExitCode != 0 && (err != nil || !lost.found) {
		return nil, o.failure("nvidia-smi")
	}
	return list, err
}

// nvidiaText is a text that is read line by line.
type nvidiaText struct {
	source  string
	number  int
	columns []string // nil before the header
	devices []device.Device
	found   bool // a lost device
	none    bool // the host has no device
}

func (p *nvidiaText) line(line string) error {
	p.number++
	switch {
	case line == "", p.lostDevice(line):
		return nil
	case p.columns == nil && strings.HasPrefix(line, "No devices"):
		p.none = true
		return nil
	case p.columns == nil:
		return p.header(line)
	}
	values := strings.Split(line, ",")
	if len(values) != len(p.columns) {
		return p.cell("row", line).Fault(fmt.Sprintf("%d columns", len(p.columns)))
	}
	d := device.Device{Vendor: device.NVIDIA, Index: -1, Health: device.HealthUnknown}
	for i, column := range p.columns {
		if err := nvidiaField(&d, p.cell(column, strings.TrimSpace(values[i]))); err != nil {
			return err
		}
	}
	if d.ID = d.UUID; d.ID == "" {
		d.ID = fmt.Sprintf("nvidia-%d", d.Index)
	}
	p.devices = append(p.devices, d)
	return nil
}

func (p *nvidiaText) cell(field, text string) reading.Cell {
	return reading.Cell{Source: p.source, Line: p.number, Field: field, Text: text}
}

// header takes the names of the columns, without their units.
func (p *nvidiaText) header(line string) error {
	hasIndex := false
	for column := range strings.SplitSeq(line, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(column), " [")
		p.columns = append(p.columns, name)
		hasIndex = hasIndex || name == "index"
	}
	if !hasIndex {
		return p.cell("header", line).Fault("the names of the columns, index among them")
	}
	return nil
}

// nvidiaField takes one value. A value in brackets that tells of a fault is one of the
// device, whatever column it stands in.
func nvidiaField(d *device.Device, c reading.Cell) error {
	var err error
	var v device.Figure[float64]
	if strings.Contains(c.Text, "requires reset") || strings.Contains(c.Text, "is lost") {
		d.Health, d.Fault = device.Failed, strings.Trim(c.Text, "[]")
	}
	switch c.Field {
	case "index":
		d.Index, err = c.Index()
	case "uuid":
		if !reading.IsUnknown(c.Text) {
			d.UUID = c.Text
		}
	case "name":
		if !reading.IsUnknown(c.Text) {
			d.Model = c.Text
		}
	case "pci.bus_id":
		d.BusID = reading.BusID(c.Text)
	case "memory.total":
		v, err = c.Number("MiB")
		d.MemoryBytes = reading.Bytes(v, mib)
	case "memory.used":
		v, err = c.Number("MiB")
		d.UsedBytes = reading.Bytes(v, mib)
	case "utilization.gpu":
		v, err = c.Number("%")
		d.Utilization = reading.Fraction(v)
	case "temperature.gpu":
		d.Celsius, err = c.Number("C")
	case "power.draw":
		d.Watts, err = c.Number("W")
	case "ecc.errors.uncorrected.volatile.total":
		v, err = c.Number("errors")
		reading.MemoryErrors(d, v, device.Figure[float64]{})
	}
	return err
}

// lostDevice takes a line about a device that cannot be reached, and reports whether it
// is one.
func (p *nvidiaText) lostDevice(line string) bool {
	rest, ok := strings.CutPrefix(line, nvidiaLost)
	if !ok {
		return false
	}
	p.found = true
	d := device.Device{Vendor: device.NVIDIA, Index: -1, Health: device.Gone, Fault: "driver cannot reach it"}
	parts := strings.Split(rest, ": ")
	if len(parts) > 1 {
		d.Fault = parts[len(parts)-1]
	}
	for _, part := range parts {
		part = strings.TrimSpace(strings.TrimLeft(part, "GPUgpu "))
		if n, err := strconv.ParseUint(part, 10, 16); err == nil {
			d.Index = int(n)
		} else if id := reading.BusID(part); id != "" {
			d.BusID = id
		}
	}
	switch {
	case d.BusID != "":
		d.ID = d.BusID
	case d.Index >= 0:
		d.ID = fmt.Sprintf("nvidia-%d", d.Index)
	default:
		d.ID = "nvidia-lost"
	}
	p.devices = append(p.devices, d)
	return true
}
