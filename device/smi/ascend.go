package smi

import (
	"fmt"
	"strings"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
)

// ParseAscend reads the table that "npu-smi info" prints: two header rows, then two rows for
// each chip, then a table of processes, which is left out. It knows the columns by their
// names, so that tables with and without HBM-Usage, Phy-ID and Device, and of any width,
// are read alike. The chips are listed in the order of the table, which is that of the
// logical IDs.
func ParseAscend(text string) ([]device.Device, error) {
	p := ascendText{}
	for line := range strings.Lines(text) {
		p.number++
		row, ok := tableRow(line)
		if !ok {
			continue
		}
		if len(row) > 0 && strings.Contains(strings.Join(row, " "), "Process") {
			break
		}
		if err := p.row(row); err != nil {
			return nil, err
		}
	}
	switch {
	case p.top == nil:
		return nil, p.cell("header", firstLine(text)).Fault("a table of NPU, Name, Health")
	case p.open != nil:
		return nil, p.cell("Chip", "").Fault("a second row for the chip")
	}
	return p.devices, nil
}

// tableRow returns the cells of a row in bars.
func tableRow(line string) ([]string, bool) {
	line = strings.TrimSpace(line)
	if len(line) < 2 || line[0] != '|' || line[len(line)-1] != '|' {
		return nil, false
	}
	cells := strings.Split(line[1:len(line)-1], "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(c)
	}
	return cells, true
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// ascendText is a text that is read row by row.
type ascendText struct {
	number      int
	top, bottom []string // the header: names in its two rows, by cell
	open        *device.Device
	npu         int
	devices     []device.Device
}

func (p *ascendText) cell(field, text string) reading.Cell {
	return reading.Cell{Source: "npu-smi info", Line: p.number, Field: field, Text: text}
}

func (p *ascendText) row(cells []string) error {
	switch {
	case p.top == nil && len(cells) == 1:
		return nil // the version
	case p.top == nil:
		return p.header(&p.top, cells, "NPU", "Health", "Power(W)", "Temp(C)")
	case p.bottom == nil:
		return p.header(&p.bottom, cells, "Chip", "Bus-Id", "AICore(%)", "Memory-Usage(MB)")
	case len(cells) != len(p.top):
		return p.cell("row", strings.Join(cells, "|")).Fault(fmt.Sprintf("%d cells", len(p.top)))
	case p.open == nil:
		return p.upper(cells)
	}
	return p.lower(cells)
}

// header takes the names of the columns; those wanted must be among them.
func (p *ascendText) header(into *[]string, cells []string, want ...string) error {
	text := strings.Join(cells, " ")
	if len(cells) != 3 {
		return p.cell("header", text).Fault("3 cells")
	}
	for _, name := range want {
		if !strings.Contains(text, name) {
			return p.cell("header", text).Fault(name)
		}
	}
	*into = cells
	return nil
}

// upper reads NPU and Name, Health, and Power, Temp and Hugepages-Usage.
func (p *ascendText) upper(cells []string) error {
	names := strings.Fields(cells[0])
	if len(names) == 0 {
		return p.cell("NPU", cells[0]).Fault("a number and a name")
	}
	var err error
	if p.npu, err = p.cell("NPU", names[0]).Index(); err != nil {
		return err
	}
	d := device.Device{Vendor: device.Ascend, Index: len(p.devices), Model: strings.Join(names[1:], " ")}
	d.Health, d.Fault = ascendHealth(cells[1])
	values := strings.Fields(cells[2])
	if len(values) < 2 {
		return p.cell("Power(W)", cells[2]).Fault("power and temperature")
	}
	if d.Watts, err = p.cell("Power(W)", values[0]).Number("W"); err != nil {
		return err
	}
	if d.Celsius, err = p.cell("Temp(C)", values[1]).Number("C"); err != nil {
		return err
	}
	p.open = &d
	return nil
}

// ascendHealth reads the words of the vendor, from the mildest to the worst.
func ascendHealth(word string) (device.Health, string) {
	switch strings.ToUpper(word) {
	case "OK":
		return device.Healthy, ""
	case "WARNING":
		return device.Degraded, word
	case "ALARM", "CRITICAL":
		return device.Failed, word
	}
	return device.HealthUnknown, ""
}

// lower reads Chip and, where there is one, the ID of the chip in the host; Bus-Id; and the
// use of cores and memories.
func (p *ascendText) lower(cells []string) error {
	d := p.open
	numbers := strings.Fields(cells[0])
	if len(numbers) == 0 || len(numbers) != len(strings.Fields(p.bottom[0])) {
		return p.cell("Chip", cells[0]).Fault(p.bottom[0])
	}
	chip, err := p.cell("Chip", numbers[0]).Index()
	if err != nil {
		return err
	}
	switch {
	case len(numbers) > 1: // Phy-ID or Device: the number of the chip in the host
		if reading.IsUnknown(numbers[1]) {
			d.ID = fmt.Sprintf("ascend-%d-%d", p.npu, chip)
			break
		}
		number, err := p.cell("Phy-ID", numbers[1]).Index()
		if err != nil {
			return err
		}
		d.ID = fmt.Sprintf("ascend-%d", number)
	case chip > 0:
		d.ID = fmt.Sprintf("ascend-%d-%d", p.npu, chip)
	default:
		d.ID = fmt.Sprintf("ascend-%d", p.npu)
	}
	d.BusID = reading.BusID(cells[1])
	if err := p.usage(d, cells[2]); err != nil {
		return err
	}
	p.devices, p.open = append(p.devices, *d), nil
	return nil
}

// usage reads AICore, Memory-Usage and HBM-Usage. Slashes stand between used and total, with or
// without spaces around them; HBM is the memory of the device where there is any.
func (p *ascendText) usage(d *device.Device, text string) error {
	values := strings.Fields(strings.ReplaceAll(text, "/", " "))
	names := []string{"AICore(%)", "Memory-Usage(MB)", "Memory-Usage(MB)"}
	if strings.Contains(p.bottom[2], "HBM-Usage") {
		names = append(names, "HBM-Usage(MB)", "HBM-Usage(MB)")
	}
	if len(values) != len(names) {
		return p.cell(names[len(names)-1], text).Fault(p.bottom[2])
	}
	figures := make([]device.Figure[float64], len(values))
	for i, v := range values {
		var err error
		if figures[i], err = p.cell(names[i], v).Number("%"); err != nil {
			return err
		}
	}
	d.Utilization = reading.Fraction(figures[0])
	used, total := figures[1], figures[2]
	if len(figures) > 3 && figures[4].Value > 0 {
		used, total = figures[3], figures[4]
	}
	d.UsedBytes, d.MemoryBytes = reading.Bytes(used, mib), reading.Bytes(total, mib)
	return nil
}
