package sched

import (
	"errors"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/internal/kernel"
)

var (
	// ErrUnknown is the error for a name that the cluster does not know.
	ErrUnknown = errors.New("sched: not known")
	// ErrExists is the error for the name of a task or group that is placed, or of a preemption
	// under way. Gangs are told apart by their tasks.
	ErrExists = errors.New("sched: exists already")
	// ErrNoRoom is the error for what would fit if others left.
	ErrNoRoom = errors.New("sched: no room now")
	// ErrInfeasible is the error for what would not fit if the cluster were empty.
	ErrInfeasible = errors.New("sched: can never fit")
)

// Placement is where a task is, or would be.
type Placement struct {
	Task string
	Node string
	// Devices are those of the node that it uses, Share of each.
	Devices DeviceSet
	Share   Milli
}

// record is something placed: a task, a bundle of a group, or a hold for a task that
// waits for others to leave.
type record struct {
	task    Task
	need    need
	devices DeviceSet
	host    int32
	place   int32 // in the host's tasks
	group   *group
	hold    *hold
	gang    *gang
	leaving *hold  // whose victim it is, or the move that it is on
	before  uint64 // work of the host when it was placed
}

// choice is the outcome of a decision.
type choice struct {
	host    int
	devices DeviceSet
}

// Decide returns where a task would go now, without placing it. The error wraps ErrNoRoom
// or ErrInfeasible and does not say more, so that a decision allocates nothing; Explain
// does. The task is expected to be valid.
func (c *Cluster) Decide(t Task) (Placement, error) {
	ch, err := c.decide(&t)
	if err != nil {
		return Placement{}, err
	}
	return Placement{t.ID, c.hosts[ch.host].Name, ch.devices, t.normal().Share}, nil
}

// Place puts a task on a node. The error wraps ErrNoRoom, ErrInfeasible, ErrExists,
// ErrUnknown (of the group) or says which field of the task is not valid.
func (c *Cluster) Place(t Task) (Placement, error) {
	if err := t.Validate(); err != nil {
		return Placement{}, err
	}
	if c.exists(t.ID) {
		return Placement{}, fmt.Errorf("%w: task %q", ErrExists, t.ID)
	}
	if t.Group != "" {
		return c.placeInGroup(t)
	}
	ch, err := c.decide(&t)
	if err != nil {
		return Placement{}, err
	}
	p := c.commit(t, ch)
	c.learn(t.Request)
	return p, nil
}

// exists says whether a task of that name is placed, or will be when victims are gone.
func (c *Cluster) exists(task string) bool {
	_, placed := c.byID[task]
	return placed || c.coming[task]
}

// decide chooses a node and its devices.
func (c *Cluster) decide(t *Task) (choice, error) {
	cl := c.classOf(t.Request, t.Prefer)
	best := c.nearest(cl, t)
	if best < 0 {
		best = c.best(cl, t.MemoryBytes)
	}
	if len(c.classes) > 0 {
		// One other class catches up with each decision, so that none has far to go
		// when it is asked for.
		c.turn = (c.turn + 1) % len(c.classes)
		c.catchUp(c.classes[c.turn])
	}
	if best < 0 {
		if c.everFits(cl, t.MemoryBytes) {
			return choice{}, ErrNoRoom
		}
		return choice{}, ErrInfeasible
	}
	return choice{best, c.devicesFor(cl, best)}, nil
}

// nearest is the best of the nodes that hold the data of a task.
func (c *Cluster) nearest(cl *class, t *Task) int {
	best := -1
	for _, name := range t.Near {
		i, ok := c.find(name)
		if !ok || cl.scores[i] == never || c.hosts[i].memory < t.MemoryBytes {
			continue
		}
		if best < 0 || cl.scores[i] > cl.scores[best] || cl.scores[i] == cl.scores[best] && i < best {
			best = i
		}
	}
	return best
}

// best is the node with the highest score that has the memory.
func (c *Cluster) best(cl *class, memory int64) int {
	if c.config.Policy == Random {
		return c.anyOf(cl, memory)
	}
	best, high := -1, int64(never)
	for i, score := range cl.scores {
		if score > high && c.hosts[i].memory >= memory {
			best, high = i, score
		}
	}
	return best
}

// anyOf draws one of the nodes that have room, each with the same probability.
func (c *Cluster) anyOf(cl *class, memory int64) int {
	best, high := -1, uint64(0)
	for i, score := range cl.scores {
		if score == never || c.hosts[i].memory < memory {
			continue
		}
		if draw := c.draw(i); best < 0 || draw > high {
			best, high = i, draw
		}
	}
	return best
}

// draw is a number that seed, decision and i determine.
func (c *Cluster) draw(i int) uint64 {
	return kernel.Draw(c.config.Seed, c.decisions<<24+uint64(i))
}

// devicesFor chooses the devices on the node that was chosen.
func (c *Cluster) devicesFor(cl *class, i int) DeviceSet {
	h, k := &c.hosts[i], cl.need.devices
	if k == 0 {
		return 0
	}
	fitting := h.fitting(cl.need.share)
	switch {
	case cl.device[i] >= 0:
		return 1 << cl.device[i]
	case k == 1 && c.config.Policy == Random:
		nth := int(c.draw(len(c.hosts)) % uint64(fitting.Len()))
		for ; nth > 0; nth-- {
			fitting &= fitting - 1
		}
		return fitting & -fitting
	case cl.need.share == Whole && fitting.Len() > k && c.config.PickDevices != nil:
		if set := c.config.PickDevices(h.Name, fitting, k); set&^fitting == 0 && set.Len() == k {
			return set
		}
	}
	return h.tightest(cl.need.share, k)
}

// everFits says whether an empty node has room for a class.
func (c *Cluster) everFits(cl *class, memory int64) bool {
	for i := range c.hosts {
		if c.hosts[i].MemoryBytes >= memory && c.takesEmpty(cl, i) {
			return true
		}
	}
	return false
}

// takesEmpty says whether a node would have room for a class if nothing were on it.
func (c *Cluster) takesEmpty(cl *class, i int) bool {
	h := &c.hosts[i]
	if cl.need.unknown != "" || h.CPU < cl.need.cpu || cl.need.devices > int(h.count) ||
		cl.need.devices > 0 && cl.allowed>>h.model&1 == 0 {
		return false
	}
	for _, x := range cl.need.custom {
		if h.Custom[c.customs[x.index]] < x.amount {
			return false
		}
	}
	return true
}

// commit places a task as chosen.
func (c *Cluster) commit(t Task, ch choice) Placement {
	id := c.add(record{task: t, need: c.needs(t.Request), devices: ch.devices, host: int32(ch.host)})
	c.byID[t.ID] = id
	return c.placement(&c.records[id])
}

// add takes what a record needs and keeps it.
func (c *Cluster) add(r record) int32 {
	var id int32
	if n := len(c.spare); n > 0 {
		id, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		id = int32(len(c.records))
		c.records = append(c.records, record{})
	}
	h := &c.hosts[r.host]
	r.place = int32(len(h.tasks))
	h.tasks = append(h.tasks, id)
	c.works++
	r.before, h.work = h.work, c.works
	c.records[id] = r
	if kept := &c.records[id]; kept.inBundle() {
		kept.group.book(kept, 1)
	} else {
		c.book(kept, 1)
	}
	return id
}

// drop gives back what a record took, and forgets it.
func (c *Cluster) drop(id int32) {
	r := &c.records[id]
	if r.inBundle() {
		r.group.book(r, -1)
	} else {
		c.book(r, -1)
	}
	h := &c.hosts[r.host]
	last := h.tasks[len(h.tasks)-1]
	h.tasks[r.place] = last
	c.records[last].place = r.place
	h.tasks = h.tasks[:len(h.tasks)-1]
	if r.gang != nil {
		r.gang.running--
	}
	if r.task.ID != "" && c.byID[r.task.ID] == id {
		delete(c.byID, r.task.ID)
	}
	leaving := r.leaving
	*r = record{}
	c.spare = append(c.spare, id)
	if leaving != nil {
		c.refill(leaving) // it was promised that
	}
}

// undo takes back records that were placed last and will not stay: their nodes had no work.
func (c *Cluster) undo(ids []int32) {
	for _, id := range slices.Backward(ids) {
		host, before := c.records[id].host, c.records[id].before
		c.drop(id)
		c.hosts[host].work = before
	}
}

// Release ends a task and gives back what it took.
func (c *Cluster) Release(task string) error {
	id, ok := c.byID[task]
	if !ok {
		return fmt.Errorf("%w: task %q", ErrUnknown, task)
	}
	c.drop(id)
	return nil
}

// Placement returns where a task is.
func (c *Cluster) Placement(task string) (Placement, error) {
	id, ok := c.byID[task]
	if !ok {
		return Placement{}, fmt.Errorf("%w: task %q", ErrUnknown, task)
	}
	return c.placement(&c.records[id]), nil
}

func (c *Cluster) placement(r *record) Placement {
	return Placement{r.task.ID, c.hosts[r.host].Name, r.devices, r.need.share}
}

// Usage is what is taken of a node: of each device, and of its processors.
type Usage struct {
	Model   string
	CPU     Milli
	Devices []Milli
}

// Usage returns what is taken of each node, by name.
func (c *Cluster) Usage() map[string]Usage {
	all := make(map[string]Usage, len(c.hosts))
	for i := range c.hosts {
		h := &c.hosts[i]
		u := Usage{Model: h.Model, CPU: h.CPU - h.shape.cpu, Devices: make([]Milli, h.count)}
		for d := range u.Devices {
			u.Devices[d] = Whole - Milli(h.free[d])
		}
		all[h.Name] = u
	}
	return all
}

// Fragmentation returns the part of all devices that is idle and that the expected tasks
// cannot use, 0 to 1, and the same as a part of what is idle.
func (c *Cluster) Fragmentation() (ofAll, ofIdle float64) {
	if c.mix == nil {
		c.mix = newWeights(c, c.expected())
	}
	var sum, idle, all int64
	for i := range c.hosts {
		h := &c.hosts[i]
		sum, idle, all = sum+c.fragmentOf(h), idle+int64(h.idle), all+int64(h.count)*int64(Whole)
	}
	return float64(sum) / one / float64(max(all, 1)), float64(sum) / one / float64(max(idle, 1))
}

// fragmentOf is that of a node, kept until the node changes.
func (c *Cluster) fragmentOf(h *host) int64 {
	if !h.known {
		h.fragment, h.known = c.mix.fragment(&h.shape), true
	}
	return h.fragment
}
