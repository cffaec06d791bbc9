package sched

import "fmt"

// Reason says why a node does not take a task.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	// Fits: it does take it.
	Fits Reason = iota
	// WrongModel: its devices are of a model that will not do, or it has none.
	WrongModel
	// WrongVendor: its devices are of a vendor that will not do.
	WrongVendor
	// TooSmall: it would not take it if it were empty.
	TooSmall
	// IsCordoned: it takes no new tasks.
	IsCordoned
	// NoCPU: too little processor time is left.
	NoCPU
	// NoMemory: too little memory is left.
	NoMemory
	// NoCustom: too little of a custom resource is left.
	NoCustom
	// Fragmented: enough is left of its devices together, but not on as many devices.
	Fragmented
	// NoDevices: too little is left of its devices.
	NoDevices
)

// String returns the code of the reason.
func (r Reason) String() string {
	names := [...]string{
		"fits", "wrong-model", "wrong-vendor", "too-small", "cordoned", "no-cpu", "no-memory", "no-custom",
		"fragmented", "no-devices",
	}
	if int(r) >= len(names) {
		return fmt.Sprintf("reason %d", uint8(r))
	}
	return names[r]
}

// The resources of a Rejection that have no name of their own.
const (
	cpuName     = "CPU"
	memoryName  = "memory"
	devicesName = "devices"
)

// Rejection is why one node does not take a task: what it needs of which resource, and
// what there is. Amounts are in thousandths, of memory in bytes. Of a wrong model or vendor,
// Resource is its name, and there are no amounts.
type Rejection struct {
	Node       string
	Reason     Reason
	Resource   string
	Need, Have int64
}

// String returns the rejection as one line, as "n4: no-cpu: CPU 2 of 1.5 cores".
func (r Rejection) String() string {
	text := fmt.Sprintf("%s: %v", r.Node, r.Reason)
	switch {
	case r.Resource == "":
		return text
	case r.Reason == WrongModel || r.Reason == WrongVendor:
		return text + ": " + r.Resource
	case r.Resource == memoryName:
		return fmt.Sprintf("%s: %s %d of %d bytes", text, r.Resource, r.Need, r.Have)
	case r.Resource == cpuName:
		return fmt.Sprintf("%s: %s %v of %v cores", text, r.Resource, Milli(r.Need), Milli(r.Have))
	}
	return fmt.Sprintf("%s: %s %v of %v", text, r.Resource, Milli(r.Need), Milli(r.Have))
}

// Explain says of every node that does not take a task now why it does not, in the order
// of the names. It changes nothing. Decisions do without it, so they need not pay for it.
func (c *Cluster) Explain(t Task) []Rejection {
	cl := class{need: c.needs(t.Request), request: t.normal(), allowed: c.allowed(t.Request)}
	var list []Rejection
	for i := range c.hosts {
		if r := c.explain(&cl, i); r.Reason != Fits {
			list = append(list, r)
		}
	}
	return list
}

func (c *Cluster) explain(cl *class, i int) Rejection {
	h := &c.hosts[i]
	if cl.need.devices > 0 && (h.count == 0 || cl.allowed>>h.model&1 == 0) {
		wrong := Rejection{Node: h.Name, Reason: WrongModel, Resource: h.Model}
		if h.count > 0 && c.allowed(Request{Models: cl.request.Models})>>h.model&1 == 1 {
			wrong.Reason, wrong.Resource = WrongVendor, h.Vendor
		}
		return wrong
	}
	if cl.need.unknown != "" {
		return Rejection{h.Name, TooSmall, cl.need.unknown, int64(cl.request.Custom[cl.need.unknown]), 0}
	}
	empty := newHost(h.Node)
	empty.model = h.model
	for _, name := range c.customs {
		empty.custom = append(empty.custom, h.Custom[name])
	}
	if r := c.lack(cl, &empty); r.Reason != Fits {
		r.Reason = TooSmall
		return r
	}
	if h.cordoned {
		return Rejection{Node: h.Name, Reason: IsCordoned}
	}
	return c.lack(cl, h)
}

// lack is the first resource that a node has too little left of.
func (c *Cluster) lack(cl *class, h *host) Rejection {
	n := cl.need
	switch {
	case h.shape.cpu < n.cpu:
		return Rejection{h.Name, NoCPU, cpuName, int64(n.cpu), int64(h.shape.cpu)}
	case h.memory < n.memory:
		return Rejection{h.Name, NoMemory, memoryName, n.memory, h.memory}
	}
	for _, x := range n.custom {
		if have := h.custom[x.index]; have < x.amount {
			return Rejection{h.Name, NoCustom, c.customs[x.index], int64(x.amount), int64(have)}
		}
	}
	if n.devices == 0 || h.fitting(n.share).Len() >= n.devices {
		return Rejection{Node: h.Name}
	}
	short := Rejection{h.Name, NoDevices, devicesName, int64(n.share) * int64(n.devices), int64(h.idle)}
	if short.Have >= short.Need {
		short.Reason = Fragmented
	}
	return short
}
