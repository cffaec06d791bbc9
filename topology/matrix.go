package topology

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// MaxTextBytes is the length up to which parsers read a text.
const MaxTextBytes = 4 << 20

var (
	// escapes are the underlining that nvidia-smi puts around its header.
	escapes = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	// accelerator matches the names that tools give accelerators: GPU0, NPU0.
	accelerator = regexp.MustCompile(`^[A-Z]{2,4}[0-9]{1,4}$`)
	// bonded matches links with a number of lanes.
	bonded = regexp.MustCompile(`^(NV|MT)([0-9]*)$`)
)

// cells are the words of a matrix, without those that have a number of lanes. SOC is what SYS was
// called by early drivers; SIO joins the dies of one package; HCCS_SW and UB are HCCS over a
// switch and its successor.
var cells = map[string]Kind{
	"SIO": KindSame, "HCCS": KindHCCS, "HCCS_SW": KindHCCS, "UB": KindHCCS, "XGMI": KindXGMI,
	"PSB": KindBoard, "PIX": KindSwitch, "PXB": KindSwitches, "PHB": KindHostBridge,
	"NODE": KindSocket, "SYS": KindNode, "SOC": KindNode,
}

// ParseMatrix reads the matrix that "nvidia-smi topo -m", "npu-smi info -t topo" and
// "mthreads-gmi topo -m" print: a header with the names of the devices, a row for each
// device, and a legend, which is not read. Names in the header that are not those of
// accelerators are network cards. Where the two cells of a pair differ, the weaker counts.
// A word that is not known, N/A for one, is a link of KindUnknown.
//
// The text is at most MaxTextBytes long. A text that is not a matrix gives a *ParseError.
func ParseMatrix(r io.Reader) (*Graph, error) {
	text, err := readText("matrix", r)
	if err != nil {
		return nil, err
	}
	m := matrix{rows: make(map[string][]Link)}
	for number, line := range strings.Split(escapes.ReplaceAllString(text, ""), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(m.devices) > 0 && (len(m.rows) == len(m.devices) || fields[0] == "Legend:") {
			break
		}
		if err := m.read(number+1, fields); err != nil {
			return nil, err
		}
	}
	return m.graph()
}

// readText returns all of r.
func readText(format string, r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxTextBytes+1))
	if err != nil {
		return "", fmt.Errorf("topology: %s: %w", format, err)
	}
	if len(text) > MaxTextBytes {
		return "", &ParseError{format, 0, "text", fmt.Sprintf("longer than %d bytes", MaxTextBytes)}
	}
	return string(text), nil
}

// matrix is what has been read.
type matrix struct {
	devices []Device
	rows    map[string][]Link
}

func (m *matrix) fault(line int, field, format string, args ...any) error {
	return &ParseError{"matrix", line, field, fmt.Sprintf(format, args...)}
}

// read takes one line: whatever stands above the header, the header, or a row.
func (m *matrix) read(line int, fields []string) error {
	if len(m.devices) > 0 {
		return m.row(line, fields)
	}
	if !accelerator.MatchString(fields[0]) {
		return nil
	}
	for _, name := range fields {
		if name == "CPU" || name == "NUMA" || name == "GPU" {
			break // the columns beside the matrix: CPU Affinity, NUMA Affinity, GPU NUMA ID
		}
		m.devices = append(m.devices, Device{Name: name, NIC: !accelerator.MatchString(name) || strings.HasPrefix(name, "NIC"), NUMA: Unknown})
	}
	if len(m.devices) > MaxDevices {
		return m.fault(line, fields[0], "%d devices, limit %d", len(m.devices), MaxDevices)
	}
	return nil
}

func (m *matrix) row(line int, fields []string) error {
	name, n := fields[0], len(m.devices)
	at := -1
	for i, d := range m.devices {
		if d.Name == name {
			at = i
		}
	}
	switch {
	case at < 0:
		return m.fault(line, name, "the header has no device of this name")
	case m.rows[name] != nil:
		return m.fault(line, name, "second row of this device")
	case len(fields) <= n:
		return m.fault(line, m.devices[len(fields)-1].Name, "the row ends after %d of %d columns", len(fields)-1, n)
	}
	row := make([]Link, n)
	for i, word := range fields[1 : n+1] {
		link, err := m.cell(word)
		switch {
		case err != nil:
			return m.fault(line, m.devices[i].Name, "%s", err)
		case (word == "X") != (i == at):
			return m.fault(line, m.devices[i].Name, "%.16q, but X is for the device itself and for nothing else", word)
		}
		row[i] = link
	}
	m.rows[name] = row
	beside := fields[n+1:]
	if len(beside) > 0 && beside[0][0] >= '0' && beside[0][0] <= '9' {
		m.devices[at].CPUs = beside[0]
	}
	if len(beside) > 1 {
		if numa, err := strconv.ParseUint(beside[1], 10, 16); err == nil {
			m.devices[at].NUMA = int(numa)
		}
	}
	return nil
}

// cell returns the link that a word stands for.
func (m *matrix) cell(word string) (Link, error) {
	if found := bonded.FindStringSubmatch(word); found != nil {
		kind := KindNVLink
		if found[1] == "MT" {
			kind = KindMTLink
		}
		lanes, err := strconv.Atoi(found[2])
		if err != nil || lanes < 1 || lanes > MaxLanes {
			return Link{}, fmt.Errorf("%.16q has no number of links from 1 to %d", word, MaxLanes)
		}
		return NewLink(kind, lanes), nil
	}
	return NewLink(cells[word], 1), nil
}

func (m *matrix) graph() (*Graph, error) {
	if len(m.devices) == 0 {
		return nil, m.fault(0, "header", "no line begins with the name of an accelerator")
	}
	for _, d := range m.devices {
		if m.rows[d.Name] == nil {
			return nil, m.fault(0, d.Name, "no row of this device")
		}
	}
	g, err := NewGraph(m.devices, func(i, j int) Link { return m.rows[m.devices[i].Name][j] })
	if err != nil {
		return nil, m.fault(0, "header", "%s", err)
	}
	return g, nil
}
