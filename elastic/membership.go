package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// change is the difference that a decision makes to the set of servers.
type change struct {
	keep  []shard.ServerID // draining ones that take shards again
	add   []shard.ServerID // new ones
	drain []shard.ServerID // ones that are to leave
}

// decide fills in the decision about the number of servers and returns the
// change, which is empty if the number stays.
func (p Policy) decide(v view, st *State, d *Decision, numMoves int, valid bool) change {
	n := len(v.active())
	d.From, d.To = n, n
	above, below := p.above(d.Readings), p.below(d.Readings)
	if p.Manual {
		above, below = nil, nil
	}
	st.observe(v.At, len(above) > 0, len(below) > 0)
	least, most := p.bounds(v)
	switch {
	case !valid:
		d.Reason = InvalidSnapshot
	case len(v.Shards) == 0:
		d.Reason = NoShards
	case v.joining > 0:
		d.Reason = WorkInFlight
	case n < least:
		p.resize(v, st, d, least, BelowMin, countTrigger(n, "<", "min", least))
	case v.Target > 0:
		if to := min(max(v.Target, least), most); to != n {
			p.resize(v, st, d, to, Requested, countTrigger(n, requestRelation(n, to), "requested", to))
		}
	case n > most:
		p.resize(v, st, d, most, AboveMax, countTrigger(n, ">", "max", most))
	case v.ownerDown():
		d.Reason = OwnerDown
	case len(above) > 0:
		d.Triggers = above
		p.grow(v, st, d, numMoves)
	case len(below) > 0:
		d.Triggers = below
		p.shrink(v, st, d, numMoves)
	default:
		d.Reason = idleReason(d.Readings)
	}
	if !d.Scaled() {
		return change{}
	}
	st.acted(v.At, *d, p.DwellDown)
	return p.choose(v, st, d)
}

func requestRelation(n, to int) string {
	if n < to {
		return "<"
	}
	return ">"
}

func idleReason(r Readings) Reason {
	for _, x := range r {
		if x.Known {
			return Steady
		}
	}
	return NoSignal
}

// resize goes to a number that is not a question of load: no dwell, no cooldown.
// Only a start of a server that failed a short time ago holds it back.
func (p Policy) resize(v view, st *State, d *Decision, to int, why Reason, t Trigger) {
	d.Triggers, d.Reason = []Trigger{t}, why
	if to > d.From && st.backingOff(subject{kind: AddServer}, v.At) {
		d.Reason = BackingOff
		return
	}
	if to < d.From {
		p.drainTo(v, st, d, to, why)
		return
	}
	d.To = to
}

// grow decides how many servers to add, if any: the greatest number within the
// step after which the signals would not ask for fewer.
func (p Policy) grow(v view, st *State, d *Decision, numMoves int) {
	_, most := p.bounds(v)
	switch {
	case d.From >= most:
		d.Reason = AtMax
	case v.moving+numMoves > 0:
		d.Reason = WorkInFlight
	case !st.up.heldFor(v.At, p.Dwell):
		d.Reason = Dwelling
	case st.cooling(v.At, p.Cooldown):
		d.Reason = CoolingDown
	case st.backingOff(subject{kind: AddServer}, v.At):
		d.Reason = BackingOff
	default:
		d.Reason = WouldReverse
		for k := min(p.step(d.From, true), most-d.From); k > 0; k-- {
			if len(p.below(predict(d.Readings, d.From, d.From+k))) == 0 {
				d.To, d.Reason = d.From+k, Load
				return
			}
		}
		d.reject(Rejection{Subject: "add_server", Reason: WouldReverse, Detail: "one more and all signals would be below their thresholds"})
	}
}

// shrink decides how many servers to remove, if any: the greatest number within
// the step after which no signal would come near its upper threshold.
func (p Policy) shrink(v view, st *State, d *Decision, numMoves int) {
	least, _ := p.bounds(v)
	switch {
	case d.From <= least:
		d.Reason = AtMin
	case v.moving+numMoves > 0:
		d.Reason = WorkInFlight
	case !st.down.heldFor(v.At, st.dwellDown(p.DwellDown)):
		d.Reason = Dwelling
	case st.cooling(v.At, p.Cooldown):
		d.Reason = CoolingDown
	default:
		d.Reason = WouldReverse
		var last []Trigger
		for k := min(p.step(d.From, false), d.From-least); k > 0; k-- {
			last = p.tight().above(predict(d.Readings, d.From, d.From-k))
			if len(last) == 0 {
				p.drainTo(v, st, d, d.From-k, Load)
				return
			}
		}
		d.reject(Rejection{Subject: "remove_server", Reason: WouldReverse, Detail: "one less predicts " + last[0].String()})
	}
}

// drainTo decides for fewer servers if those that stay have room for the shards
// of those that leave.
func (p Policy) drainTo(v view, st *State, d *Decision, to int, why Reason) {
	leaving := make(map[shard.ServerID]bool, d.From-to)
	for _, id := range v.leastLoaded(d.From - to) {
		leaving[id] = true
		if st.backingOff(subject{kind: DrainServer, server: id}, v.At) {
			d.Reason = BackingOff
			return
		}
	}
	servers := v.usable()
	for i := range servers {
		servers[i].Draining = servers[i].Draining || leaving[servers[i].ID]
	}
	if _, err := shard.Rebalance(v.projected(), v.Shards, servers); err != nil {
		d.Reason = NoRoom
		d.reject(Rejection{Subject: "remove_server", Reason: NoRoom, Detail: err.Error()})
		return
	}
	d.To, d.Reason = to, why
}

// leastLoaded returns the k servers with the least data that take shards, the
// last by name first among equals.
func (v view) leastLoaded(k int) []shard.ServerID {
	candidates := v.active()
	slices.SortFunc(candidates, func(a, b ServerSample) int {
		return cmp.Or(cmp.Compare(v.bytes[a.ID], v.bytes[b.ID]), -cmp.Compare(a.ID, b.ID))
	})
	ids := make([]shard.ServerID, k)
	for i := range ids {
		ids[i] = candidates[i].ID
	}
	return ids
}

// tight are the thresholds with the headroom taken off the upper ones.
func (p Policy) tight() Thresholds {
	t, keep := p.Thresholds, 1-p.Headroom
	t.UtilizationUp *= keep
	t.BandwidthUp *= keep
	t.LatencyUp = time.Duration(float64(t.LatencyUp) * keep)
	return t
}

// choose names the servers of a decision. Growing keeps draining servers first,
// those with the most data before others, since they need no start and the
// fewest moves; shrinking drains the servers with the least data, the last by
// name first.
func (p Policy) choose(v view, st *State, d *Decision) change {
	var c change
	if d.To < d.From {
		c.drain = v.leastLoaded(d.From - d.To)
		return c
	}
	leaving := v.keepable(st)
	c.keep = leaving[:min(len(leaving), d.To-d.From)]
	for len(c.keep)+len(c.add) < d.To-d.From {
		c.add = append(c.add, p.nextName(v, st))
	}
	return c
}

// keepable returns the draining servers that could take shards again, the one
// with the most data first.
func (v view) keepable(st *State) []shard.ServerID {
	var ids []shard.ServerID
	for _, s := range v.servers {
		failed := st.backingOff(subject{kind: KeepServer, server: s.ID}, v.At)
		if s.Up && s.Draining && !failed && !v.busy[subject{kind: RemoveServer, server: s.ID}] {
			ids = append(ids, s.ID)
		}
	}
	slices.SortFunc(ids, func(a, b shard.ServerID) int {
		return cmp.Or(cmp.Compare(v.bytes[b], v.bytes[a]), cmp.Compare(a, b))
	})
	return ids
}

// nextName returns a name that no server of the snapshot has and that this state
// has never given before.
func (p Policy) nextName(v view, st *State) shard.ServerID {
	for {
		id := shard.ServerID(fmt.Sprintf("%s%d", p.ServerPrefix, st.nextServer))
		st.nextServer++
		if !v.has(id) {
			return id
		}
	}
}

// operators makes the operators of a change.
func (c change) operators(p Policy, v view, d *Decision) []Operator {
	var ops []Operator
	each := func(kind Kind, ids []shard.ServerID, timeout time.Duration, numServers int) {
		for _, id := range ids {
			ops = append(ops, Operator{
				Kind: kind, Server: id, Timeout: timeout, Reason: d.why(),
				Influence: Influence{Servers: numServers, Bytes: v.followingBytes(kind, id, d.To)},
			})
		}
	}
	each(KeepServer, c.keep, p.DrainTimeout, 1)
	each(AddServer, c.add, p.AddTimeout, 1)
	each(DrainServer, c.drain, p.DrainTimeout, -1)
	return ops
}

// followingBytes is how much the moves that follow the operator carry: to a
// server that takes shards what it lacks to its fair share, from one that leaves
// all that it has.
func (v view) followingBytes(kind Kind, id shard.ServerID, numServers int) int64 {
	if kind == DrainServer {
		return v.bytes[id]
	}
	var total int64
	for _, s := range v.Shards {
		total += s.Bytes()
	}
	return max(0, total/int64(max(1, numServers))-v.bytes[id])
}
