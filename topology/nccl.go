package topology

import (
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	// maxDepth and maxElements bound a topology file.
	maxDepth    = 64
	maxElements = 1 << 14

	classSwitch = "0x0680" // NVSwitch
)

// ParseNCCL reads a topology file of NCCL or RCCL (NCCL_TOPO_FILE, or what NCCL_TOPO_DUMP_FILE
// has written): system, cpu, and nested pci elements, with gpu and nvlink or xgmi in them
// if NCCL wrote it. Accelerators are pci elements of class 0x0300 and 0x0302 or with a
// gpu element, network cards those of class 0x02; a file may have none, as some clouds
// describe switches alone. The name of a device is its bus ID.
//
// Devices with links to NVSwitches are connected with each other by as many as the one with fewer
// has. Beneath direct links, and where there are none, the way over PCIe counts, with the
// bandwidth of the slower of the two slots (link_speed, link_width).
//
// The text is at most MaxTextBytes long. Others give a *ParseError.
func ParseNCCL(r io.Reader) (*Graph, error) {
	text, err := readText("NCCL XML", r)
	if err != nil {
		return nil, err
	}
	t := ncclReader{decoder: xml.NewDecoder(strings.NewReader(text))}
	for {
		token, err := t.decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, t.fault("element", "%s", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if err := t.start(e); err != nil {
				return nil, err
			}
		case xml.EndElement:
			t.stack = t.stack[:len(t.stack)-1]
		}
	}
	if t.elements == 0 {
		return nil, t.fault("system", "the text has no element")
	}
	return t.graph()
}

// slot is a pci element.
type slot struct {
	above       []int // the pci and cpu elements around it, from the outside
	class       string
	name        string
	isGPU       bool
	numa        int
	cpus        string
	rate        float64 // bytes per second in one direction, 0 if the file does not say
	capability  int
	lanes       map[string]int // to other bus IDs
	switchLanes int
	direct      Kind
}

// ncclReader is what has been read.
type ncclReader struct {
	decoder  *xml.Decoder
	elements int
	stack    []int // at each depth: number of a slot, from 1, negative number of a cpu, 0 for others
	slots    []slot
	numCPUs  int
	numa     int
	cpus     string
}

func (t *ncclReader) fault(field, format string, args ...any) error {
	line, _ := t.decoder.InputPos()
	return &ParseError{"NCCL XML", line, field, fmt.Sprintf(format, args...)}
}

func (t *ncclReader) start(e xml.StartElement) error {
	t.elements++
	if t.elements > maxElements || len(t.stack) >= maxDepth {
		return t.fault(e.Name.Local, "more than %d elements, or more than %d within each other", maxElements, maxDepth)
	}
	if t.elements == 1 && e.Name.Local != "system" {
		return t.fault(e.Name.Local, "the first element must be system")
	}
	attributes := make(map[string]string, len(e.Attr))
	for _, a := range e.Attr {
		attributes[a.Name.Local] = a.Value
	}
	number := 0
	var err error
	switch e.Name.Local {
	case "cpu":
		t.numCPUs++
		number = -t.numCPUs
		t.cpus = attributes["affinity"]
		t.numa, err = t.number(attributes, "numaid", Unknown)
	case "pci":
		err = t.pci(attributes)
		number = len(t.slots)
	case "gpu", "nvlink", "xgmi":
		err = t.inside(e.Name.Local, attributes)
	}
	t.stack = append(t.stack, number)
	return err
}

// number returns an attribute that is a number from -1 to 65,535, missing if it is not there.
func (t *ncclReader) number(attributes map[string]string, name string, missing int) (int, error) {
	value, ok := attributes[name]
	if !ok {
		return missing, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < -1 || n > 1<<16-1 {
		return 0, t.fault(name, "%.32q is no number from -1 to %d", value, 1<<16-1)
	}
	return n, nil
}

// pci takes a slot with its way to the system.
func (t *ncclReader) pci(attributes map[string]string) error {
	s := slot{name: strings.ToLower(attributes["busid"]), class: strings.ToLower(attributes["class"]), numa: t.numa, cpus: t.cpus}
	if s.name == "" {
		return t.fault("busid", "a pci element has none")
	}
	for _, outer := range t.stack {
		if outer != 0 {
			s.above = append(s.above, outer)
		}
	}
	s.isGPU = strings.HasPrefix(s.class, "0x0302") || strings.HasPrefix(s.class, "0x0300")
	speed, width := attributes["link_speed"], attributes["link_width"]
	if first, _, _ := strings.Cut(speed, " "); first != "" && width != "" && !strings.HasPrefix(first, "Unknown") {
		gigatransfers, err := strconv.ParseFloat(first, 64)
		if err != nil || !(gigatransfers >= 0 && gigatransfers <= 1024) {
			return t.fault("link_speed", "%.32q is no speed from 0 to 1024 GT/s", speed)
		}
		lanes, err := strconv.Atoi(width)
		if err != nil || lanes < 0 || lanes > 64 {
			return t.fault("link_width", "%.32q is no width from 0 to 64", width)
		}
		s.rate = PCIeBytesPerSecond(gigatransfers, lanes)
	}
	t.slots = append(t.slots, s)
	return nil
}

// inside takes a gpu, nvlink or xgmi element, which belong to the slot around them.
func (t *ncclReader) inside(element string, attributes map[string]string) error {
	at := len(t.stack) - 1
	for at >= 0 && t.stack[at] <= 0 {
		at--
	}
	if at < 0 {
		return t.fault(element, "it stands outside of every pci element")
	}
	s := &t.slots[t.stack[at]-1]
	s.isGPU = true
	if element == "gpu" {
		capability, err := t.number(attributes, "sm", 0)
		s.capability = capability
		return err
	}
	count, err := t.number(attributes, "count", 1)
	if err != nil {
		return err
	}
	if count < 0 || count > MaxLanes {
		return t.fault("count", "%d links, limit %d", count, MaxLanes)
	}
	target := strings.ToLower(attributes["target"])
	if target == "" {
		return t.fault("target", "a link has none")
	}
	s.direct = KindNVLink
	if element == "xgmi" {
		s.direct = KindXGMI
	}
	if strings.HasPrefix(strings.ToLower(attributes["tclass"]), classSwitch) {
		s.switchLanes = min(s.switchLanes+count, MaxLanes)
		return nil
	}
	if s.lanes == nil {
		s.lanes = make(map[string]int)
	}
	s.lanes[target] = min(s.lanes[target]+count, MaxLanes)
	return nil
}

// graph takes accelerators and network cards, in the order of the file.
func (t *ncclReader) graph() (*Graph, error) {
	var slots []slot
	var devices []Device
	for _, s := range t.slots {
		isNIC := strings.HasPrefix(s.class, "0x02")
		if s.isGPU || isNIC {
			slots = append(slots, s)
			devices = append(devices, Device{Name: s.name, NIC: !s.isGPU, NUMA: s.numa, CPUs: s.cpus})
		}
	}
	g, err := NewGraph(devices, func(i, j int) Link { return slots[i].to(slots[j]) })
	if err != nil {
		return nil, t.fault("busid", "%s", err)
	}
	return g, nil
}

// to returns the link of a slot with another one, as this one sees it.
func (s slot) to(other slot) Link {
	path := s.path(other)
	lanes := s.lanes[other.name]
	if lanes == 0 {
		lanes = min(s.switchLanes, other.switchLanes)
	}
	if lanes > 0 {
		rate := Rate(s.direct)
		if s.direct == KindNVLink {
			rate = nvlinkRate(s.capability)
		}
		return Link{Kind: s.direct, Lanes: lanes, Path: path, BytesPerSecond: rate * float64(lanes)}
	}
	link := NewLink(path, 0)
	slower := min(cmp.Or(s.rate, other.rate), cmp.Or(other.rate, s.rate))
	switch {
	case slower == 0:
	case path == KindSwitch || path == KindSwitches:
		link.BytesPerSecond = slower
	default:
		link.BytesPerSecond = min(slower, link.BytesPerSecond)
	}
	return link
}

// path says what the way over PCIe crosses: of the elements around both the first is a
// cpu; below it, the switches that are not around both, and the last that is.
func (s slot) path(other slot) Kind {
	shared := 0
	for shared < min(len(s.above), len(other.above)) && s.above[shared] == other.above[shared] {
		shared++
	}
	switch switches := len(s.above) + len(other.above) - 2*shared + 1; {
	case shared == 0:
		return KindNode
	case shared == 1:
		return KindHostBridge
	case switches == 1:
		return KindSwitch
	}
	return KindSwitches
}
