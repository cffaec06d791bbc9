package elastic

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// maxDuration bounds the durations of a policy.
const maxDuration = 365 * 24 * time.Hour

// Policy turns snapshots into plans. It is a value without state, and a pure
// function of its arguments. A zero field is the default in brackets.
type Policy struct {
	Thresholds

	// Dwell is how long a signal must stay above its threshold without a
	// break before servers are added (5 s).
	Dwell time.Duration
	// DwellDown is how long all signals must stay below theirs before servers
	// are removed (5 min, the scale-down stabilization of Kubernetes'
	// horizontal autoscaler). It doubles, up to 16 times, with each growth that
	// follows a shrinking which the load asked for: a load that swings around a
	// threshold ends with the servers that its peak needs. Shrinking counts as
	// justified, and the doubling ends, when it has stood for 16 DwellDown.
	DwellDown time.Duration
	// Cooldown is the least time from the end of a change to the next one
	// that the load asks for (30 s).
	Cooldown time.Duration
	// Backoff is how long work that failed is left alone (10 s).
	Backoff time.Duration

	// Manual takes the load out of it: only a request, Min and Max change the
	// number of servers (false). Shards are balanced over them all the same, so a
	// move made by hand that unbalances is undone.
	Manual bool
	// Min is the least number of servers (1).
	Min int
	// Max is the greatest number of servers (no bound but the number of
	// shards, which bounds every Max: a server without a shard is of no use).
	Max int
	// GrowBy is the fraction of the servers that one decision adds, rounded
	// up: 0.5 makes 12 of 8 (0.5).
	GrowBy float64
	// ShrinkBy is the fraction that one decision removes, rounded down but at
	// least one server (0.34, which makes 8 of 12).
	ShrinkBy float64
	// Headroom is the fraction below the upper thresholds that the predicted
	// load must keep for servers to be removed (0.1).
	Headroom float64
	// MaxMoves is the greatest number of moves at once (4).
	MaxMoves int
	// ServerPrefix begins the names of new servers; a number follows ("ps-").
	ServerPrefix string

	AddTimeout    time.Duration // of AddServer (30 s)
	DrainTimeout  time.Duration // of DrainServer and KeepServer (5 s)
	MoveTimeout   time.Duration // of MoveShard (60 s)
	RemoveTimeout time.Duration // of RemoveServer (30 s)
}

func (p Policy) withDefaults() Policy {
	p.Thresholds = p.Thresholds.withDefaults()
	p.Dwell = cmp.Or(p.Dwell, 5*time.Second)
	p.DwellDown = cmp.Or(p.DwellDown, 5*time.Minute)
	p.Cooldown = cmp.Or(p.Cooldown, 30*time.Second)
	p.Backoff = cmp.Or(p.Backoff, 10*time.Second)
	p.AddTimeout = cmp.Or(p.AddTimeout, 30*time.Second)
	p.DrainTimeout = cmp.Or(p.DrainTimeout, 5*time.Second)
	p.MoveTimeout = cmp.Or(p.MoveTimeout, 60*time.Second)
	p.RemoveTimeout = cmp.Or(p.RemoveTimeout, 30*time.Second)
	p.GrowBy = cmp.Or(p.GrowBy, 0.5)
	p.ShrinkBy = cmp.Or(p.ShrinkBy, 0.34)
	p.Headroom = cmp.Or(p.Headroom, 0.1)
	p.Min = cmp.Or(p.Min, 1)
	p.Max = cmp.Or(p.Max, max(p.Min, shard.MaxServers))
	p.MaxMoves = cmp.Or(p.MaxMoves, 4)
	p.ServerPrefix = cmp.Or(p.ServerPrefix, "ps-")
	return p
}

// Validate reports every fault of the policy at once, each with its value and
// bound. It does not block.
func (p Policy) Validate() error {
	p = p.withDefaults()
	errs := p.Thresholds.faults()
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("elastic: "+format, args...)) }
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"Dwell", p.Dwell},
		{"DwellDown", p.DwellDown},
		{"Cooldown", p.Cooldown},
		{"Backoff", p.Backoff},
		{"AddTimeout", p.AddTimeout},
		{"DrainTimeout", p.DrainTimeout},
		{"MoveTimeout", p.MoveTimeout},
		{"RemoveTimeout", p.RemoveTimeout},
	} {
		if f.d < 0 || f.d > maxDuration {
			fault("%s %v: want over 0 and at most %v", f.name, f.d, maxDuration)
		}
	}
	for _, f := range []struct {
		name string
		v    float64
	}{{"GrowBy", p.GrowBy}, {"ShrinkBy", p.ShrinkBy}, {"Headroom", p.Headroom}} {
		if !(f.v > 0 && f.v <= 1) {
			fault("%s %v: want over 0 and at most 1", f.name, f.v)
		}
	}
	if p.Min < 1 || p.Max < p.Min || p.Max > shard.MaxServers {
		fault("Min %d, Max %d: want 1 <= Min <= Max <= %d", p.Min, p.Max, shard.MaxServers)
	}
	if p.MaxMoves < 1 {
		fault("MaxMoves %d: want >= 1", p.MaxMoves)
	}
	if n := len(p.ServerPrefix); n > shard.MaxServerIDBytes-20 {
		fault("ServerPrefix of %d bytes: want at most %d", n, shard.MaxServerIDBytes-20)
	}
	return errors.Join(errs...)
}

// Plan is what to do now.
type Plan struct {
	// Operators are new ones, to be started now, in any order.
	Operators []Operator
	// Decision says what was decided about the number of servers, and why.
	Decision Decision
}

// Plan returns what to do about a snapshot, and the state for the next call.
// It changes neither argument, does not block and cannot fail: a snapshot that
// contradicts itself gives no operators, and a decision that says so. It
// expects a policy that passes Validate.
func (p Policy) Plan(s Snapshot, st State) (Plan, State) {
	p = p.withDefaults()
	v, st := newView(s), st.clone()
	st.absorb(p, s)
	d := &Decision{At: s.At, Readings: measure(v.active())}
	moves, valid := p.moves(v, &st, d)
	change := p.decide(v, &st, d, len(moves), valid)
	moves = slices.DeleteFunc(moves, func(o Operator) bool { return slices.Contains(change.drain, o.Move.To) })
	var ops []Operator
	ops = append(ops, p.removals(v, st, d, change.keep)...)
	ops = append(ops, moves...)
	ops = append(ops, change.operators(p, v, d)...)
	for i := range ops {
		st.nextOperator++
		ops[i].ID, ops[i].Created, ops[i].Status = st.nextOperator, s.At, Created
	}
	return Plan{Operators: ops, Decision: *d}, st
}

// moves plans the migrations that balance the servers and empty the draining
// ones, as many as may start now, and says whether the snapshot made sense.
func (p Policy) moves(v view, st *State, d *Decision) ([]Operator, bool) {
	if err := v.Map.Validate(len(v.Shards)); err != nil {
		d.reject(Rejection{Subject: "snapshot", Reason: InvalidSnapshot, Detail: err.Error()})
		return nil, false
	}
	if len(v.Shards) == 0 || len(v.active()) == 0 {
		return nil, true
	}
	planned, err := shard.Rebalance(v.projected(), v.Shards, v.usable())
	if err != nil {
		d.reject(Rejection{Subject: "rebalance", Reason: NoRoom, Detail: err.Error()})
		return nil, true
	}
	var ops []Operator
	for _, mv := range planned {
		o := Operator{
			Kind: MoveShard, Move: mv, Timeout: p.MoveTimeout, Reason: v.moveReason(mv),
			Influence: Influence{Bytes: v.Shards[mv.Shard].Bytes()},
		}
		reason := Steady
		switch {
		case v.busy[o.subject()], v.starting(mv.To): // a start that fails is undone
			reason = WorkInFlight
		case st.backingOff(o.subject(), v.At):
			reason = BackingOff
		case v.moving+len(ops) >= p.MaxMoves:
			reason = MoveLimit
		}
		if reason != Steady {
			d.reject(Rejection{Subject: fmt.Sprintf("%v %d %s→%s", MoveShard, mv.Shard, mv.From, mv.To), Reason: reason})
			continue
		}
		ops = append(ops, o)
	}
	return ops, true
}

// projected is the map as it will be when the moves in flight have succeeded:
// work in flight counts before anything is weighed.
func (v view) projected() shard.Map {
	m := v.Map.Clone()
	for _, o := range v.InFlight {
		i := int(o.Move.Shard)
		if o.Kind == MoveShard && i < len(m.Assignments) && m.Assignments[i].Owner == o.Move.From {
			m.Assignments[i].Owner = o.Move.To
		}
	}
	return m
}

func (v view) moveReason(mv shard.Move) string {
	for _, s := range v.servers {
		if s.ID == mv.From && s.Draining {
			return "drain " + string(mv.From)
		}
	}
	return "balance"
}

// removals takes the servers out of the job that are empty and either draining or
// down, except those that are to be kept after all.
func (p Policy) removals(v view, st State, d *Decision, keep []shard.ServerID) []Operator {
	var ops []Operator
	for _, s := range v.servers {
		o := Operator{Kind: RemoveServer, Server: s.ID, Timeout: p.RemoveTimeout, Reason: "drained and empty"}
		if !s.Up {
			o.Reason = "down and empty"
		}
		if s.Up && !s.Draining || !v.empty(s.ID) || v.engaged(s.ID) {
			continue
		}
		switch {
		case slices.Contains(keep, s.ID):
		case st.backingOff(o.subject(), v.At):
			d.reject(Rejection{Subject: fmt.Sprintf("%v %s", RemoveServer, s.ID), Reason: BackingOff})
		default:
			ops = append(ops, o)
		}
	}
	return ops
}

// bounds are the least and the greatest number of servers for this job.
func (p Policy) bounds(v view) (least, most int) {
	return p.Min, max(p.Min, min(p.Max, len(v.Shards)))
}

// step is the greatest number of servers that one decision adds or removes.
func (p Policy) step(n int, grow bool) int {
	if grow {
		return max(1, int(math.Ceil(float64(n)*p.GrowBy)))
	}
	return max(1, int(float64(n)*p.ShrinkBy))
}
