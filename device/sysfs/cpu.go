package sysfs

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
)

// Processors is a provider of the host's processors as one device.
type Processors struct {
	files tree

	mu   sync.Mutex
	last ticks // when the use was last read
}

var _ device.Provider = (*Processors)(nil)

// CPU returns a provider that reads the processors and the memory of the host from /proc. It
// fails when Root is not a folder.
func CPU(c Config) (*Processors, error) {
	files, err := open(c)
	return &Processors{files: files}, err
}

// Source returns "proc".
func (p *Processors) Source() string { return "proc" }

// ticks is the time of all processors since the host was started, in ticks of its clock.
type ticks struct {
	busy, all uint64
}

const maxCPUInfoBytes = 1 << 20

// Devices reads the files and returns one device. Its utilization is that since the call
// before, of whoever made it, and unknown at the first.
func (p *Processors) Devices(ctx context.Context) ([]device.Device, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sysfs: %w", err)
	}
	d := device.Device{ID: "cpu-0", Vendor: device.CPU, Health: device.Healthy}
	if err := p.files.memory(&d); err != nil {
		return nil, err
	}
	info, _ := p.files.read(maxCPUInfoBytes, "proc/cpuinfo")
	for line := range strings.Lines(info) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			d.Model = strings.TrimSpace(value)
			break
		}
	}
	now, err := p.files.ticks()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.last; last.all > 0 && now.all > last.all && now.busy >= last.busy {
		d.Utilization = device.Known(min(1, float64(now.busy-last.busy)/float64(now.all-last.all)))
	}
	p.last = now
	if d.Celsius, err = p.files.heat(); err != nil {
		return nil, err
	}
	return []device.Device{d}, nil
}

// memory reads MemTotal and MemAvailable, in units of 1,024 bytes.
func (t tree) memory(d *device.Device) error {
	text, ok := t.read(maxFileBytes, "proc/meminfo")
	c := reading.Cell{Source: "/proc/meminfo", Field: "MemTotal", Text: text}
	if !ok {
		return c.Fault("a file")
	}
	var available device.Figure[int64]
	for line := range strings.Lines(text) {
		c.Line++
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "MemTotal" && name != "MemAvailable" {
			continue
		}
		c.Field, c.Text = name, value
		v, err := c.Number("kB")
		if err != nil {
			return err
		}
		if name == "MemTotal" {
			d.MemoryBytes = reading.Bytes(v, 1024)
		} else {
			available = reading.Bytes(v, 1024)
		}
	}
	if d.MemoryBytes.Known && available.Known && available.Value <= d.MemoryBytes.Value {
		d.UsedBytes = device.Known(d.MemoryBytes.Value - available.Value)
	}
	return nil
}

// ticks reads the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq
// and steal; what follows is part of the first two.
func (t tree) ticks() (ticks, error) {
	text, _ := t.read(maxFileBytes, "proc/stat")
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	c := reading.Cell{Source: "/proc/stat", Line: 1, Field: "cpu", Text: line}
	if len(fields) < 5 || fields[0] != "cpu" {
		return ticks{}, c.Fault("cpu and at least 4 numbers")
	}
	var sum ticks
	for i, f := range fields[1:min(len(fields), 9)] {
		v, err := strconv.ParseUint(f, 10, 60)
		if err != nil {
			return ticks{}, c.Fault("numbers")
		}
		sum.all += v
		if i != 3 && i != 4 { // idle, iowait
			sum.busy += v
		}
	}
	return sum, nil
}

// heat returns the temperature that a sensor of the processor reports.
func (t tree) heat() (device.Figure[float64], error) {
	const folder = "sys/class/hwmon"
	chips, _ := t.numbered(folder, "hwmon") // none: nothing is known
	for _, c := range chips {
		switch name, _ := t.read(maxFileBytes, folder, c.name, "name"); name {
		case "coretemp", "k10temp", "zenpower", "cpu_thermal":
			v, err := t.number(path.Join(folder, c.name), "temp1_input")
			return scaled(v, 1e-3), err
		}
	}
	return device.Figure[float64]{}, nil
}
