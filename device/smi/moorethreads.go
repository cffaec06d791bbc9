package smi

import (
	"fmt"
	"strings"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
)

// ParseMooreThreads reads the table that mthreads-gmi prints: a header of three rows, three
// rows for each device, then a table of processes, which is left out. Power is not in it.
func ParseMooreThreads(text string) ([]device.Device, error) {
	p := mooreText{}
	for line := range strings.Lines(text) {
		p.number++
		if strings.HasPrefix(strings.TrimSpace(line), "Processes:") {
			break
		}
		if cells := strings.Split(strings.TrimRight(line, " \r\n"), "|"); len(cells) > 1 {
			if err := p.row(cells); err != nil {
				return nil, err
			}
		}
	}
	if !p.header {
		return nil, p.cell("header", firstLine(text)).Fault("a table of ID, Name, PCIe, %GPU, Mem")
	}
	if p.place == 1 {
		return nil, p.cell("Temp", "").Fault("a second row for the device")
	}
	return p.devices, nil
}

// mooreText is a text that is read row by row.
type mooreText struct {
	number  int
	header  bool
	place   int // of the next row within its device
	devices []device.Device
}

func (p *mooreText) cell(field, text string) reading.Cell {
	return reading.Cell{Source: "mthreads-gmi", Line: p.number, Field: field, Text: strings.TrimSpace(text)}
}

func (p *mooreText) row(cells []string) error {
	first := strings.Fields(cells[0])
	switch {
	case len(first) > 0 && first[0] == "ID":
		names := strings.Join(cells, " ")
		for _, want := range []string{"Name", "PCIe", "%GPU", "Mem"} {
			if !strings.Contains(names, want) {
				return p.cell("header", names).Fault(want)
			}
		}
		p.header = true
		return nil
	case !p.header:
		return p.cell("header", strings.Join(cells, "|")).Fault("a table of ID, Name, PCIe, %GPU, Mem")
	case len(cells) != 3 && len(first) > 0:
		return p.cell("row", strings.Join(cells, "|")).Fault("3 cells")
	case len(first) > 0 && strings.Trim(first[0], "0123456789") == "" && p.place != 1:
		p.place = 1
		return p.upper(first, cells)
	case p.place == 1:
		p.place = 2
		return p.lower(cells)
	}
	return nil // the rest of the header; the mode of error correction
}

// upper reads ID and Name, the bus address, and "0%    0MiB(81920MiB)".
func (p *mooreText) upper(names, cells []string) error {
	var err error
	d := device.Device{Vendor: device.MooreThreads, Model: strings.Join(names[1:], " "), BusID: reading.BusID(cells[1])}
	if d.Index, err = p.cell("ID", names[0]).Index(); err != nil {
		return err
	}
	if d.ID = d.BusID; d.ID == "" {
		d.ID = fmt.Sprintf("moorethreads-%d", d.Index)
	}
	percent, memory, ok := strings.Cut(cells[2], "%")
	if !ok { // not reported: a word and the memory
		fields := strings.Fields(cells[2])
		if len(fields) < 2 {
			return p.cell("%GPU", cells[2]).Fault("a percentage and the memory")
		}
		percent, memory = fields[0], strings.Join(fields[1:], " ")
	}
	v, err := p.cell("%GPU", percent).Number("%")
	if err != nil {
		return err
	}
	d.Utilization = reading.Fraction(v)
	if err := p.memory(&d, memory); err != nil {
		return err
	}
	p.devices = append(p.devices, d)
	return nil
}

// memory reads "662MiB(16384MiB)": used and, in parentheses, total.
func (p *mooreText) memory(d *device.Device, text string) error {
	if reading.IsUnknown(text) {
		return nil
	}
	used, rest, ok := strings.Cut(text, "(")
	total, _, closed := strings.Cut(rest, ")")
	if !ok || !closed {
		return p.cell("Mem", text).Fault("used(total)")
	}
	v, err := p.cell("Mem", used).Number("MiB")
	if err != nil {
		return err
	}
	d.UsedBytes = reading.Bytes(v, mib)
	if v, err = p.cell("Mem", total).Number("MiB"); err != nil {
		return err
	}
	d.MemoryBytes = reading.Bytes(v, mib)
	return nil
}

// lower reads the temperature in "48C   YES"; the other values of the row are not of
// interest.
func (p *mooreText) lower(cells []string) error {
	fields := strings.Fields(cells[len(cells)-1])
	if len(cells) != 3 || len(fields) == 0 {
		return p.cell("Temp", strings.Join(cells, "|")).Fault("3 cells, a temperature in the last")
	}
	var err error
	p.devices[len(p.devices)-1].Celsius, err = p.cell("Temp", fields[0]).Number("C")
	return err
}
