package sched

import (
	"cmp"
	"errors"
	"fmt"
)

// Adopt notes tasks that run already, all or none, as those of a cluster whose scheduler has
// started again: the members of a gang in the order of their ranks, as many as have a placement, or
// tasks by themselves if it has no ID. What is placed just so is left as it is, so it does no harm
// to ask twice. Cordoned nodes keep what runs on them. The error wraps ErrExists if one of the tasks
// is elsewhere, ErrUnknown for a node that there is not, ErrNoRoom if a node has not got what
// its task takes, or says what is not valid.
func (c *Cluster) Adopt(g Gang, placements []Placement) error {
	if known, err := c.checkAdoption(g, placements); known || err != nil {
		return err
	}
	var made *gang
	if g.ID != "" {
		made = &gang{min: min(cmp.Or(g.Min, len(g.Tasks)), len(placements))}
	}
	var ids []int32
	for i, p := range placements {
		t := g.Tasks[i]
		to, ok := c.find(p.Node)
		if !ok {
			c.undo(ids)
			return fmt.Errorf("%w: node %q of task %q", ErrUnknown, p.Node, t.ID)
		}
		if !c.runsAt(t, p, to) {
			c.undo(ids)
			return fmt.Errorf("%w: task %q on devices %v of node %q", ErrNoRoom, t.ID, p.Devices.List(), p.Node)
		}
		id := c.add(record{task: t, need: c.needs(t.Request), devices: p.Devices, host: int32(to)})
		c.byID[t.ID] = id
		ids = append(ids, id)
		if made != nil {
			made.enter(&c.records[id])
		}
	}
	for i := range placements {
		c.learn(g.Tasks[i].Request)
	}
	return nil
}

// checkAdoption says whether all tasks are placed so, or what is wrong with them.
func (c *Cluster) checkAdoption(g Gang, placements []Placement) (known bool, err error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := len(placements); n < 1 || n > len(g.Tasks) || n > MaxGang {
		fault("%d Placements of %d Tasks: want 1 to %d, and a task for each", n, len(g.Tasks), MaxGang)
		return false, prefixed(errors.Join(errs...))
	}
	seen, same := make(map[string]bool), 0
	var exists error
	for i, p := range placements {
		t := g.Tasks[i]
		if err := t.check(); err != nil {
			errs = append(errs, err)
		}
		if p.Task != t.ID || t.Group != "" || seen[t.ID] {
			fault("Placements[%d] of %q for task %q of group %q: want its own, once, and no group", i, p.Task, t.ID, t.Group)
		}
		seen[t.ID] = true
		id, placed := c.byID[t.ID]
		switch {
		case placed && c.placement(&c.records[id]) == p:
			same++
		case placed || c.coming[t.ID]:
			exists = fmt.Errorf("%w: task %q", ErrExists, t.ID)
		}
	}
	if len(errs) > 0 {
		return false, prefixed(errors.Join(errs...))
	}
	if exists == nil && same > 0 && same < len(placements) {
		exists = fmt.Errorf("%w: %d of %d tasks", ErrExists, same, len(placements))
	}
	return same == len(placements), exists
}

// runsAt says whether a node has room for a task on the devices of a placement, cordoned or not.
func (c *Cluster) runsAt(t Task, p Placement, to int) bool {
	h, n := &c.hosts[to], c.needs(t.Request)
	cl := class{need: n, allowed: c.allowed(t.Request)}
	cordoned := h.cordoned
	h.cordoned = false
	refused := h.refuses(&cl)
	h.cordoned = cordoned
	return !refused && h.memory >= n.memory && p.Share == n.share && p.Devices.Len() == n.devices &&
		(n.devices == 0 || h.fitting(n.share)&p.Devices == p.Devices)
}
