package sched

import (
	"errors"
	"fmt"
	"slices"
)

// Move is a task that changes its place. Both places are taken while it moves.
type Move struct {
	Task     string
	From, To Placement
	// Gain is by how much fragmentation falls, in devices.
	Gain float64
}

// Budget limits a plan of moves.
type Budget struct {
	// Moves is the greatest number of moves.
	Moves int
	// MinGain is the least gain of a move that is worth it, in devices (0.01).
	MinGain float64
}

// Validate reports every fault of the budget at once, each with its value and bound.
func (b Budget) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if b.Moves < 1 {
		fault("Moves %d: want at least 1", b.Moves)
	}
	if !(b.MinGain >= 0 && b.MinGain <= MaxDevices) {
		fault("MinGain %v: want 0 to %d", b.MinGain, MaxDevices)
	}
	return prefixed(errors.Join(errs...))
}

// Defragment plans moves that merge what is free into blocks that the expected tasks can
// use. Each move has room for both places of its task when its turn comes, after those
// before it, so the plan may be ended after any of them. Only movable tasks move, no
// members of gangs, nothing in a group, and nothing that is a victim. The cluster is not
// changed; the moves are carried out, as migrations, and noted by Move.
func (c *Cluster) Defragment(b Budget) ([]Move, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	if b.MinGain == 0 {
		b.MinGain = 0.01
	}
	m := c.newMover()
	works := make([]uint64, len(c.hosts))
	for i := range c.hosts {
		works[i] = c.hosts[i].work
	}
	var moves []Move
	for len(moves) < b.Moves {
		move, gain := m.best()
		if gain < int64(b.MinGain*float64(Whole)*one) {
			break
		}
		move.Gain = float64(gain) / float64(Whole) / one
		if err := c.Move(move); err != nil {
			panic("sched: a planned move has no room: " + err.Error())
		}
		m.refresh(move)
		moves = append(moves, move)
	}
	for _, move := range slices.Backward(moves) {
		from, _ := c.find(move.From.Node)
		c.relocate(move.Task, from, move.From.Devices)
	}
	for i := range c.hosts {
		c.hosts[i].work = works[i]
	}
	return moves, nil
}

// Move notes that a task has moved, at once. The error wraps ErrUnknown if the task is not
// where the move begins, or ErrNoRoom if there is no room where it ends; nothing is changed
// then.
func (c *Cluster) Move(m Move) error {
	to, err := c.checkMove(m)
	if err != nil {
		return err
	}
	c.relocate(m.Task, to, m.To.Devices)
	return nil
}

// relocate takes a task to where there is room for it.
func (c *Cluster) relocate(task string, to int, devices DeviceSet) {
	id := c.byID[task]
	r := c.records[id]
	r.host, r.devices = int32(to), devices
	if r.gang != nil {
		r.gang.running++ // until the former place is given back
	}
	c.byID[task] = c.add(r)
	c.drop(id)
}

// mover is the state of planning: for each class of tasks what it would bring to place one
// on each node, and what it would bring to take away each task.
type mover struct {
	*Cluster
	classes []*moverClass
	byKey   map[string]*moverClass
	leave   []int64       // by record: gain when it goes; never for those that stay
	class   []*moverClass // by record
}

// moverClass is the tasks of one request, memory aside.
type moverClass struct {
	class
	first, second int // nodes with the highest gain; -1
}

func (c *Cluster) newMover() *mover {
	if c.mix == nil {
		c.mix = newWeights(c, c.expected())
	}
	m := &mover{Cluster: c, byKey: make(map[string]*moverClass)}
	for i := range c.hosts {
		m.refreshTasks(i)
	}
	for _, mc := range m.classes {
		m.rank(mc)
	}
	return m
}

// classFor finds the class of a record.
func (m *mover) classFor(r *record) *moverClass {
	m.key = appendKey(m.key[:0], r.task.normal(), nil)
	if mc, ok := m.byKey[string(m.key)]; ok {
		return mc
	}
	mc := &moverClass{class: class{need: r.need, allowed: m.allowed(r.task.Request)}}
	mc.scores, mc.device = make([]int64, len(m.hosts)), make([]int8, len(m.hosts))
	for i := range m.hosts {
		m.refreshGain(mc, i)
	}
	m.byKey[string(m.key)] = mc
	m.classes = append(m.classes, mc)
	return mc
}

// refreshGain finds what it brings to place one of a class on a node.
func (m *mover) refreshGain(mc *moverClass, i int) {
	h := &m.hosts[i]
	if mc.scores[i], mc.device[i] = never, -1; h.refuses(&mc.class) {
		return
	}
	f := &m.fit
	f.request, f.before, f.fragment, f.weights = &mc.class, &h.shape, m.fragmentOf(h), m.mix
	if mc.need.devices != 1 || mc.need.share == Whole {
		mc.scores[i] = f.score(scoreFragments, h.tightest(mc.need.share, mc.need.devices))
		return
	}
	for device, free := range h.free[:h.count] {
		if Milli(free) < mc.need.share || slices.Contains(h.free[:device], free) {
			continue
		}
		if gain := f.score(scoreFragments, 1<<device); gain > mc.scores[i] {
			mc.scores[i], mc.device[i] = gain, int8(device)
		}
	}
}

// scoreFragments is by how much fragments fall.
func scoreFragments(f *fit) int64 { return f.fragment - f.weights.fragment(&f.after) }

// refreshTasks finds what it brings to take away each task of a node.
func (m *mover) refreshTasks(i int) {
	for len(m.leave) < len(m.records) {
		m.leave, m.class = append(m.leave, never), append(m.class, nil)
	}
	h := &m.hosts[i]
	before := m.fragmentOf(h)
	for _, id := range h.tasks {
		r := &m.records[id]
		m.leave[id] = never
		if !r.task.Movable || r.group != nil || r.gang != nil || r.hold != nil || r.leaving != nil {
			continue
		}
		after := h.shape
		after.take(-r.need.cpu, r.devices, -r.need.share)
		m.leave[id] = before - m.mix.fragment(&after)
		m.class[id] = m.classFor(r)
	}
}

// rank finds the two best nodes of a class.
func (m *mover) rank(mc *moverClass) {
	mc.first, mc.second = -1, -1
	for i, gain := range mc.scores {
		switch {
		case gain == never:
		case mc.first < 0 || gain > mc.scores[mc.first]:
			mc.first, mc.second = i, mc.first
		case mc.second < 0 || gain > mc.scores[mc.second]:
			mc.second = i
		}
	}
}

// best is the move with the highest gain.
func (m *mover) best() (Move, int64) {
	best, to, high := int32(-1), -1, int64(never)
	for id, leave := range m.leave {
		if leave == never || m.records[id].task.ID == "" {
			continue
		}
		r, mc := &m.records[id], m.class[id]
		i := m.target(mc, r)
		if i >= 0 && leave+mc.scores[i] > high {
			best, to, high = int32(id), i, leave+mc.scores[i]
		}
	}
	if best < 0 {
		return Move{}, never
	}
	r, mc := &m.records[best], m.class[best]
	set := m.hosts[to].tightest(r.need.share, r.need.devices)
	if mc.device[to] >= 0 {
		set = 1 << mc.device[to]
	}
	return Move{
		Task: r.task.ID, From: m.placement(r),
		To: Placement{r.task.ID, m.hosts[to].Name, set, r.need.share},
	}, high
}

// target is the best node for a record other than its own, with the memory.
func (m *mover) target(mc *moverClass, r *record) int {
	if mc.first < 0 {
		return -1
	}
	own := int(r.host)
	for _, i := range [...]int{mc.first, mc.second} {
		if i >= 0 && i != own && m.hosts[i].memory >= r.need.memory {
			return i
		}
	}
	best := -1
	for i, gain := range mc.scores {
		if gain != never && i != own && m.hosts[i].memory >= r.need.memory && (best < 0 || gain > mc.scores[best]) {
			best = i
		}
	}
	return best
}

// refresh brings all up to date after a move.
func (m *mover) refresh(move Move) {
	for _, name := range [...]string{move.From.Node, move.To.Node} {
		i, _ := m.find(name)
		for _, mc := range m.classes {
			m.refreshGain(mc, i)
		}
		m.refreshTasks(i)
	}
	for _, mc := range m.classes {
		m.rank(mc)
	}
}
