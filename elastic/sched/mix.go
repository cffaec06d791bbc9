package sched

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Expected is a request and how often it comes, relative to the others of a Mix.
type Expected struct {
	Request
	Count int64
}

// Mix is what tasks are expected, the most frequent first.
type Mix []Expected

// MixOf counts the requests of tasks. Those that differ only in memory or custom
// resources count as one.
func MixOf(tasks []Task) Mix {
	var mix Mix
	places := make(map[string]int)
	var key []byte
	for _, t := range tasks {
		r := t.normal()
		r.MemoryBytes, r.Custom = 0, nil
		key = appendKey(key[:0], r, nil)
		i, ok := places[string(key)]
		if !ok {
			i = len(mix)
			places[string(key)] = i
			mix = append(mix, Expected{Request: r})
		}
		mix[i].Count++
	}
	slices.SortFunc(mix, func(a, b Expected) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Share, a.Share),
			cmp.Compare(b.Devices, a.Devices), slices.Compare(a.Models, b.Models), slices.Compare(a.Vendors, b.Vendors))
	})
	return mix
}

func (m Mix) check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i, e := range m {
		if e.Count < 1 || e.Count > MaxAmount {
			fault("Mix[%d].Count %d: want 1 to %d", i, e.Count, int64(MaxAmount))
		}
		if err := e.check(); err != nil {
			fault("Mix[%d]: %w", i, err)
		}
	}
	return errors.Join(errs...)
}

// one is the unit in which weights and scores are counted: integers, so that every
// machine decides the same.
const one = 1 << 20

// popular is the part of all tasks, in percent, whose most frequent requests make up the
// distribution that fragmentation is measured by (Weng et al., section 5).
const popular = 95

// weights are a mix, made ready for the nodes of a cluster.
type weights struct {
	rows     [MaxModels][]weight
	total    int64 // of all rows, those that use no devices included
	coreNeed Milli // processor time that goes with one device
	scarce   [MaxModels]int64
	buckets  [99]int64 // where the score of FGD rises
	maxCPU   float64
	maxIdle  float64
}

// weight is the part of tasks that ask for as much.
type weight struct {
	cpu     Milli
	devices int
	share   Milli
	part    int64
}

func newWeights(c *Cluster, mix Mix) *weights {
	w := &weights{maxCPU: 1, maxIdle: 1}
	for i := range c.hosts {
		w.maxCPU = max(w.maxCPU, float64(c.hosts[i].cores))
		w.maxIdle = max(w.maxIdle, float64(Milli(c.hosts[i].count)*Whole))
	}
	for i := range w.buckets {
		// The score is 100/(1+exp(-d)), rounded down, of a change of d devices.
		w.buckets[i] = int64(math.Ceil(1000 * one * math.Log(float64(i+1)/float64(99-i))))
	}
	w.fill(c, mix)
	w.measure(c, mix)
	return w
}

// fill makes the rows of the popular requests.
func (w *weights) fill(c *Cluster, mix Mix) {
	var all, counted int64
	for _, e := range mix {
		all += e.Count
	}
	n := 0
	for ; n < len(mix) && counted*100 < all*popular; n++ {
		counted += mix[n].Count
	}
	for _, e := range mix[:n] {
		part := int64(float64(e.Count) / float64(counted) * one)
		w.total += part
		if e.Devices == 0 {
			continue
		}
		r := e.normal()
		row := weight{r.CPU, r.Devices, r.Share, part}
		allowed := c.allowed(r)
		for model := range c.models {
			if allowed>>model&1 == 1 {
				w.rows[model] = append(w.rows[model], row)
			}
		}
	}
	for model := range w.rows {
		slices.SortStableFunc(w.rows[model], func(a, b weight) int { return cmp.Compare(a.cpu, b.cpu) })
	}
}

// measure finds how much processor time goes with a device, and how scarce each model is:
// what is asked of it by requests that not every model will do for, as a part of what
// there is.
func (w *weights) measure(c *Cluster, mix Mix) {
	var cpu, devices, all float64
	for _, have := range c.total.models {
		all += float64(have)
	}
	bound := make([]float64, len(c.models))
	for _, e := range mix {
		r := e.normal()
		amount := float64(e.Count) * float64(r.accelerator())
		if amount == 0 {
			continue
		}
		cpu += float64(e.Count) * float64(r.CPU)
		devices += amount
		allowed, have := c.allowed(r), 0.0
		if len(r.Models)+len(r.Vendors) == 0 {
			continue
		}
		for model, v := range c.total.models {
			have += float64(v) * float64(allowed>>model&1)
		}
		for model := range bound {
			if have > 0 && allowed>>model&1 == 1 {
				bound[model] += amount / have
			}
		}
	}
	if devices == 0 {
		return
	}
	w.coreNeed = Milli(min(cpu/devices*float64(Whole), 1<<40))
	for model, b := range bound {
		w.scarce[model] = int64(min(b*all/devices, 16) * one)
	}
}

// run is the devices of a node with at least so much left each: how many, and how much
// they have left together.
type run struct {
	least  Milli
	count  int
	amount Milli
}

// runs returns what is left on the devices, in falling order of what is left on one.
func (s *shape) runs(buffer *[MaxDevices]run) []run {
	n := 0
	for _, f := range s.free[:s.count] {
		i := n
		for i > 0 && buffer[i-1].least < Milli(f) {
			i--
		}
		if i > 0 && buffer[i-1].least == Milli(f) {
			buffer[i-1].count++
			continue
		}
		copy(buffer[i+1:n+1], buffer[i:n])
		buffer[i] = run{least: Milli(f), count: 1}
		n++
	}
	count, amount := 0, Milli(0)
	for i := range buffer[:n] {
		r := &buffer[i]
		count, amount = count+r.count, amount+r.least*Milli(r.count)
		r.count, r.amount = count, amount
	}
	return buffer[:n]
}

// fragment is how much of a node's idle devices the expected tasks cannot use, in
// thousandths of a device and units of one. A task that cannot run on the node at all
// makes a fragment of all that is idle, another one of the devices on which too little
// is left for it (Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4).
func (w *weights) fragment(s *shape) int64 {
	if s.idle == 0 {
		return 0
	}
	var buffer [MaxDevices]run
	runs := s.runs(&buffer)
	sum := w.total * int64(s.idle)
	for _, row := range w.rows[s.model] {
		if row.cpu > s.cpu {
			break
		}
		usable := -1
		for usable+1 < len(runs) && runs[usable+1].least >= row.share {
			usable++
		}
		if usable >= 0 && runs[usable].count >= row.devices {
			sum -= row.part * int64(runs[usable].amount)
		}
	}
	return sum
}

// starved is how much of a node's idle devices has no processor time to go with it, if
// tasks ask for as much as is expected, in thousandths of a device.
func (w *weights) starved(s *shape) Milli {
	if w.coreNeed == 0 || s.cpu >= s.idle*w.coreNeed/Whole {
		return 0
	}
	return s.idle - s.cpu*Whole/w.coreNeed
}
