package sched

import (
	"errors"
	"fmt"
)

// BeginMove keeps the room where a move ends, so that it can be carried out while both places
// are taken. Until FinishMove or AbandonMove the task is nobody's victim and does not move
// elsewhere. The error wraps ErrUnknown if the task is not where the move begins, or
// ErrNoRoom; nothing is changed then.
func (c *Cluster) BeginMove(m Move) error {
	to, err := c.checkMove(m)
	if err != nil {
		return err
	}
	id := c.byID[m.Task]
	r := &c.records[id]
	task, need, devices := r.task, r.need, m.To.Devices
	h := &hold{plan: &Preemption{ID: moving(m.Task), Placements: []Placement{m.To}, tasks: []Task{task}}}
	r.leaving = h
	c.holds[moving(m.Task)] = h
	h.records = append(h.records, c.add(record{need: need, devices: devices, host: int32(to), hold: h}))
	return nil
}

// FinishMove notes that a move that was begun has been carried out. If the task has ended
// or a node has gone meanwhile, the move is over and the error wraps ErrUnknown.
func (c *Cluster) FinishMove(m Move) error {
	h, ok := c.holds[moving(m.Task)]
	if !ok {
		return fmt.Errorf("%w: move of %q", ErrUnknown, m.Task)
	}
	if h.broken || h.plan.Placements[0] != m.To {
		return errors.Join(fmt.Errorf("%w: move of %q to %q, which is gone", ErrUnknown, m.Task, m.To.Node), c.AbandonMove(m.Task))
	}
	id, ok := c.byID[m.Task]
	if !ok || c.records[id].leaving != h {
		return errors.Join(fmt.Errorf("%w: move of %q, which has ended", ErrUnknown, m.Task), c.AbandonMove(m.Task))
	}
	if err := c.AbandonMove(m.Task); err != nil {
		return err
	}
	to, _ := c.find(m.To.Node)
	c.relocate(m.Task, to, m.To.Devices)
	return nil
}

// AbandonMove ends a move that was begun: the task stays where it is.
func (c *Cluster) AbandonMove(task string) error {
	h, ok := c.holds[moving(task)]
	if !ok {
		return fmt.Errorf("%w: move of %q", ErrUnknown, task)
	}
	delete(c.holds, moving(task))
	c.dropAll(h.records)
	c.stay(h, task)
	return nil
}

// moving is the name of the hold for a move, which no task is likely to have.
func moving(task string) string { return "\x00move\x00" + task }

// checkMove says whether there is room where a move ends, and which node that is.
func (c *Cluster) checkMove(m Move) (to int, err error) {
	id, ok := c.byID[m.Task]
	if !ok || c.placement(&c.records[id]) != m.From {
		return 0, fmt.Errorf("%w: move of %q from %q", ErrUnknown, m.Task, m.From.Node)
	}
	r := &c.records[id]
	to, ok = c.find(m.To.Node)
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: move of %q to %q", ErrUnknown, m.Task, m.To.Node)
	case r.group != nil || r.leaving != nil:
		return 0, fmt.Errorf("%w: move of %q, in a group or on its way", ErrNoRoom, m.Task)
	}
	cl := class{need: r.need, allowed: c.allowed(r.task.Request)}
	h := &c.hosts[to]
	if h.refuses(&cl) || h.memory < r.need.memory || m.To.Devices.Len() != r.need.devices ||
		r.need.devices > 0 && h.fitting(r.need.share)&m.To.Devices != m.To.Devices {
		return 0, fmt.Errorf("%w: move of %q to %q", ErrNoRoom, m.Task, m.To.Node)
	}
	return to, nil
}
