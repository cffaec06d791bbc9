package collective

import (
	"encoding/binary"
	"math"
)

// tunes reports whether calls like this one find their algorithm by contest. They do where no
// rank is through before all have begun, so that a rank can tell how long a call takes.
func (g *Group) tunes(f *Fingerprint) bool {
	switch f.Collective {
	case AllReduce, Barrier:
		return g.contests != nil && !g.model.Shared
	case ReduceScatter, AllGather:
		return g.contests != nil
	}
	return false
}

// choose settles the algorithm of a call whose turn it is, and returns the contest that wants
// to know how long it takes, if there is one. All calls before it have ended on this rank, so
// contests are as they are on the other ranks in that call.
func (g *Group) choose(o *operation) (*contest, error) {
	if o.call.Algorithm != 0 {
		return nil, nil
	}
	k := kindOf(&o.call, g.cfg.Deterministic)
	c := g.contests[k]
	if c == nil {
		some := g.model.worthTrying(&o.call, g.cfg.Deterministic)
		c = newContest(o.call.bytes(), some, g.model.timeOf(&o.call, some[0]))
		g.contests[k] = c
	}
	if c.due() {
		all, err := g.swap(o, c.figures())
		if err != nil {
			return nil, err
		}
		c.agree(all)
		g.log.Debug("collective: ranks compared algorithms", "call", o.call, "round", c.round, "left", c.left)
	}
	o.call.Algorithm = c.next()
	if c.decided() {
		return nil, nil
	}
	return c, nil
}

// scale is what the time of a call is multiplied with to compare it with those of a contest:
// calls of one kind differ in size.
func (g *Group) scale(c *contest, f *Fingerprint) float64 {
	at := g.model.estimate(f.Collective, f.Algorithm, float64(c.bytes))
	if e := g.model.timeOf(f, f.Algorithm); c.bytes != f.bytes() && at > 0 && e > 0 {
		return at / e
	}
	return 1
}

// swap gives all ranks the figures of all, one rank after the other. That is the beginning of a
// call: its frames are those of the call without an algorithm.
func (g *Group) swap(o *operation, figures []float64) ([]float64, error) {
	const size = 8
	f := Fingerprint{Collective: AllGather, Type: o.call.Type, Count: len(figures) * size / o.call.Type.Bytes()}
	f.Algorithm = g.model.choose(&f, false)
	plan, err := g.plan(&f)
	if err != nil {
		return nil, err
	}
	own, all := g.rank*len(figures), make([]float64, g.Size()*len(figures))
	raw := make([]byte, len(all)*size)
	for i, x := range figures {
		binary.LittleEndian.PutUint64(raw[(own+i)*size:], math.Float64bits(x))
	}
	if err := g.runner.run(o, plan, place{raw, 0}, place{}); err != nil {
		return nil, err
	}
	for i := range all {
		all[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[i*size:]))
	}
	return all, nil
}
