package sched

import (
	"encoding/binary"
	"math"
	"slices"
)

// maxClasses bounds the tables of scores; the class that was not asked for longest gives
// way.
const maxClasses = 512

// never is the score of a node that cannot take a request as it is.
const never = math.MinInt64

// need is a request, made ready for a cluster.
type need struct {
	cpu     Milli
	memory  int64
	devices int
	share   Milli
	custom  []customNeed
	unknown string // a custom resource that no node has
}

type customNeed struct {
	index  int
	amount Milli
}

// class is all requests that are equal but for memory, with what is known of every node
// for them: the score and, for a fraction, the device. Only nodes that changed since are
// looked at again, so a decision is one pass over a list of numbers.
type class struct {
	key     string
	need    need
	request Request
	allowed uint64  // models
	prefer  []int64 // by model, in units of maxScore; nil if all are equal
	scores  []int64
	device  []int8
	seen    int // changes that the scores include
	used    uint64
}

// appendKey appends what tells the classes of requests apart.
func appendKey(key []byte, r Request, prefer map[string]int) []byte {
	for _, v := range [...]int64{int64(r.CPU), int64(r.Devices), int64(r.Share), int64(len(r.Models)), int64(len(r.Vendors))} {
		key = binary.AppendVarint(key, v)
	}
	text := func(s string) { key = append(binary.AppendUvarint(key, uint64(len(s))), s...) }
	for _, s := range r.Models {
		text(s)
	}
	for _, s := range r.Vendors {
		text(s)
	}
	if len(r.Custom)+len(prefer) == 0 {
		return key
	}
	for _, name := range sortedKeys(r.Custom) {
		text(name)
		key = binary.AppendVarint(key, int64(r.Custom[name]))
	}
	key = append(key, 0)
	for _, name := range sortedKeys(prefer) {
		text(name)
		key = binary.AppendVarint(key, int64(prefer[name]))
	}
	return key
}

// needs makes a request ready.
func (c *Cluster) needs(r Request) need {
	r = r.normal()
	n := need{cpu: r.CPU, memory: r.MemoryBytes, devices: r.Devices, share: r.Share}
	if len(r.Custom) == 0 {
		return n
	}
	for _, name := range sortedKeys(r.Custom) {
		switch i := slices.Index(c.customs, name); {
		case r.Custom[name] == 0:
		case i < 0:
			n.unknown = name
		default:
			n.custom = append(n.custom, customNeed{i, r.Custom[name]})
		}
	}
	return n
}

// allowed are the models, as bits, that will do for a request.
func (c *Cluster) allowed(r Request) uint64 {
	var set uint64
	for i, m := range c.models {
		if (len(r.Models) == 0 || slices.Contains(r.Models, m.name)) &&
			(len(r.Vendors) == 0 || slices.Contains(r.Vendors, m.vendor)) {
			set |= 1 << i
		}
	}
	return set
}

// classOf finds the class of a request, or makes it, up to date.
func (c *Cluster) classOf(r Request, prefer map[string]int) *class {
	c.key = appendKey(c.key[:0], r.normal(), prefer)
	cl, ok := c.byKey[string(c.key)]
	if !ok {
		cl = c.newClass(string(c.key), r, prefer)
	}
	c.decisions++
	cl.used = c.decisions
	c.catchUp(cl)
	return cl
}

func (c *Cluster) newClass(key string, r Request, prefer map[string]int) *class {
	cl := &class{key: key, request: r, need: c.needs(r), allowed: c.allowed(r), seen: -1}
	if len(prefer) > 0 {
		cl.prefer = make([]int64, len(c.models))
		for i, m := range c.models {
			cl.prefer[i] = int64(prefer[m.name]+prefer[m.vendor]) * maxScore
		}
	}
	c.byKey[key] = cl
	if len(c.classes) < maxClasses {
		cl.scores, cl.device = make([]int64, len(c.hosts)), make([]int8, len(c.hosts))
		c.classes = append(c.classes, cl)
		return cl
	}
	oldest := 0
	for i := range c.classes {
		if c.classes[i].used < c.classes[oldest].used {
			oldest = i
		}
	}
	gone := c.classes[oldest]
	delete(c.byKey, gone.key)
	cl.scores, cl.device, c.classes[oldest] = gone.scores, gone.device, cl
	return cl
}

// forgetScores drops all classes: nodes came or went, or the mix is another one.
func (c *Cluster) forgetScores() {
	c.classes, c.changes, c.turn = c.classes[:0], c.changes[:0], 0
	clear(c.byKey)
	c.mix = nil
	for i := range c.hosts {
		c.hosts[i].known = false
	}
}

// changed notes that a node is not what it was.
func (c *Cluster) changed(i int) {
	c.hosts[i].known = false
	if len(c.changes) >= 4*len(c.hosts)+4096 {
		for _, cl := range c.classes {
			c.catchUp(cl)
			cl.seen = 0
		}
		c.changes = c.changes[:0]
	}
	c.hosts[i].touched = len(c.changes)
	c.changes = append(c.changes, int32(i))
}

// catchUp brings the scores of a class up to date.
func (c *Cluster) catchUp(cl *class) {
	if c.mix == nil {
		c.mix = newWeights(c, c.expected())
	}
	if cl.seen < 0 || len(c.changes)-cl.seen > 2*len(c.hosts) {
		c.rateAll(cl)
		return
	}
	for ; cl.seen < len(c.changes); cl.seen++ {
		i := int(c.changes[cl.seen])
		if h := &c.hosts[i]; h.touched == cl.seen {
			cl.scores[i], cl.device[i] = c.rate(cl, h)
		}
	}
}

// rating is the score of a shape.
type rating struct {
	class  *class
	shape  shape
	score  int64
	device int8
}

// rateAll scores all nodes for a class. Many are alike, so the last results are kept at
// hand.
func (c *Cluster) rateAll(cl *class) {
	clear(c.ratings[:])
	for i := range c.hosts {
		h := &c.hosts[i]
		if len(cl.need.custom) > 0 || h.cordoned {
			cl.scores[i], cl.device[i] = c.rate(cl, h)
			continue
		}
		r := &c.ratings[h.hash()%uint64(len(c.ratings))]
		if r.class != cl || r.shape != h.shape {
			score, device := c.rate(cl, h)
			*r = rating{cl, h.shape, score, device}
		}
		cl.scores[i], cl.device[i] = r.score, r.device
	}
	cl.seen = len(c.changes)
}

// hash is the same for equal shapes.
func (s *shape) hash() uint64 {
	x := uint64(s.cpu)<<20 ^ uint64(s.idle) ^ uint64(s.model)<<56
	for _, f := range s.free[:s.count] {
		x = x*31 + uint64(f)
	}
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>32
}

// rate is the score of one node for a class, and the device for a fraction.
func (c *Cluster) rate(cl *class, h *host) (score int64, device int8) {
	score, device = never, -1
	if h.refuses(cl) {
		return score, device
	}
	rule := &rules[c.config.Policy]
	f := &c.fit
	f.request, f.before, f.fragment, f.weights = cl, &h.shape, c.fragmentOf(h), c.mix
	if fraction := cl.need.devices == 1 && cl.need.share < Whole; fraction && rule.each {
		for i, free := range h.free[:h.count] {
			if Milli(free) < cl.need.share || slices.Contains(h.free[:i], free) {
				continue
			}
			if s := f.score(rule.score, 1<<i); s > score {
				score, device = s, int8(i)
			}
		}
	} else {
		score = f.score(rule.score, h.tightest(cl.need.share, cl.need.devices))
	}
	if cl.prefer != nil && h.count > 0 {
		score += cl.prefer[h.model]
	}
	return score, device
}

// score is that of taking the devices.
func (f *fit) score(rule func(*fit) int64, devices DeviceSet) int64 {
	f.after = *f.before
	f.after.take(f.request.need.cpu, devices, f.request.need.share)
	return max(min(rule(f), maxScore/2), -maxScore/2)
}
