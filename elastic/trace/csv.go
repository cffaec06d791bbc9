package trace

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
)

const (
	gibibyte = 1 << 30
	custom   = "custom."
)

// ReadNodes reads nodes from CSV with a line of column names. Columns: name; cpu in cores;
// memory_gib; devices; model; vendor; domains, outermost first, parted by "/"; and one
// "custom.NAME" for each custom resource, in units. Only name and cpu have to be there; an
// empty cell is 0 or nothing. The file's name is for errors.
func ReadNodes(file string, r io.Reader) ([]sched.Node, error) {
	t, err := newTable(file, r, "name", "cpu")
	if err != nil {
		return nil, err
	}
	var nodes []sched.Node
	seen := make(map[string]bool)
	for t.next() {
		n := sched.Node{
			Name:        t.name("name"),
			CPU:         sched.Milli(t.number("cpu", float64(sched.Whole))),
			MemoryBytes: t.number("memory_gib", gibibyte),
			Devices:     int(t.optional("devices", sched.MaxDevices)),
			Vendor:      t.text("vendor"),
			Custom:      t.custom(),
		}
		if n.Model = t.text("model"); n.Devices > 0 {
			n.Model = t.name("model")
		}
		if domains := t.text("domains"); domains != "" {
			n.Domains = strings.Split(domains, "/")
		}
		t.once(seen, "name", n.Name)
		nodes = append(nodes, n)
	}
	return nodes, errors.Join(t.errs...)
}

// ReadTasks reads tasks from CSV with a line of column names. Columns: name; cpu in cores;
// memory_gib; devices, a whole number or a fraction of one; models and vendors that will
// do, parted by "|"; priority; preemptible, true or false; start_s and duration_s in
// seconds; and one "custom.NAME" for each custom resource, in units. Only name and cpu have to
// be there; an empty cell is 0 or nothing.
func ReadTasks(file string, r io.Reader) ([]Job, error) {
	t, err := newTable(file, r, "name", "cpu")
	if err != nil {
		return nil, err
	}
	var jobs []Job
	seen := make(map[string]bool)
	for t.next() {
		var j Job
		j.ID = t.name("name")
		j.CPU = sched.Milli(t.number("cpu", float64(sched.Whole)))
		j.MemoryBytes = t.number("memory_gib", gibibyte)
		j.Devices, j.Share = t.devices("devices")
		j.Models, j.Vendors = t.list("models"), t.list("vendors")
		j.Priority = int(t.optional("priority", sched.MaxPriority))
		j.Preemptible = t.flag("preemptible")
		j.Custom = t.custom()
		j.Start = t.seconds("start_s")
		j.End = j.Start + min(t.seconds("duration_s"), maxTime-j.Start)
		t.once(seen, "name", j.ID)
		t.valid(j.Validate())
		jobs = append(jobs, j)
	}
	return jobs, errors.Join(t.errs...)
}

// maxTime is the greatest time of a trace.
const maxTime = time.Duration(1<<63 - 1)

// devices returns a cell as a number of devices and a share of each.
func (t *table) devices(field string) (int, sched.Milli) {
	text := cmp.Or(t.text(field), "0")
	amount, err := strconv.ParseFloat(text, 64)
	if err == nil && amount == 0 {
		return 0, 0
	}
	n, share, wrong := sched.DevicesOf(amount)
	if err != nil || wrong != nil {
		t.errs = append(t.errs, t.fault(field, text, "0, a fraction of a device in thousandths, or a whole number of at most 16"))
	}
	return n, share
}

// flag returns a cell as true or false, false if it is empty.
func (t *table) flag(field string) bool {
	v, err := strconv.ParseBool(cmp.Or(t.text(field), "false"))
	if err != nil {
		t.errs = append(t.errs, t.fault(field, t.text(field), "true or false"))
	}
	return v
}

// custom returns the cells of custom resources, nil if there are none.
func (t *table) custom() map[string]sched.Milli {
	var amounts map[string]sched.Milli
	for _, column := range slices.Sorted(maps.Keys(t.columns)) {
		name, ok := strings.CutPrefix(column, custom)
		if !ok || t.text(column) == "" {
			continue
		}
		if amounts == nil {
			amounts = make(map[string]sched.Milli)
		}
		amounts[name] = sched.Milli(t.number(column, float64(sched.Whole)))
	}
	return amounts
}
