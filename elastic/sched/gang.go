package sched

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// MaxGang is the greatest number of tasks of a gang.
const MaxGang = 1 << 16

// Constraint keeps the ranks of a parallel group together: every Size consecutive ranks
// lie within one domain of the level.
type Constraint struct {
	// Size is the number of ranks of the group; 0 is the whole gang.
	Size int
	// Within is the level, one of Config.Levels or NodeLevel. Inside the domains that the last
	// constraint of a gang names, those of the innermost of Config.Levels are as few as can be.
	Within string
	// Prefer is a level further in, which is kept to if the whole gang fits so.
	Prefer string
}

// Gang is tasks that run together or not at all, in the order of their ranks.
type Gang struct {
	ID    string
	Tasks []Task
	// Min is how many of them must run at least, 0 is all. More are placed if they fit.
	Min int
	// Constraints are those of its parallel groups, the smallest first: tensor-parallel
	// groups of 8 within a node, pipelines of 4 such groups within a rack, and all data
	// parallel replicas within a block are {8, "node"}, {32, "rack"}, {0, "block"}. Each
	// size divides the next, no level is further in than the one before, and all tasks
	// make the same request.
	Constraints []Constraint
}

// gang is one that runs.
type gang struct {
	min, running int
	guard        int // nobody of this priority or a lower one takes the whole gang down
}

// bound is a constraint, made ready: size ranks within one domain of a level, where
// level len(Levels) is a node.
type bound struct{ size, level int }

func (c *Cluster) validateGang(g Gang) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if g.ID == "" {
		fault("ID is empty")
	} else if len(g.ID) > MaxIDBytes || g.ID[0] == 0 {
		fault("ID %.32q of %d bytes: want at most %d, the first of them not 0", g.ID, len(g.ID), MaxIDBytes)
	}
	if n := len(g.Tasks); n < 1 || n > MaxGang {
		fault("%d Tasks: want 1 to %d", n, MaxGang)
	}
	if g.Min < 0 || g.Min > len(g.Tasks) {
		fault("Min %d: want 0 to %d", g.Min, len(g.Tasks))
	}
	ids := make(map[string]bool)
	for i, t := range g.Tasks {
		errs = append(errs, t.check())
		if t.Group != "" || ids[t.ID] {
			fault("Tasks[%d] %q in group %q: want an ID of its own and no group", i, t.ID, t.Group)
		}
		if c.exists(t.ID) {
			errs = append(errs, fmt.Errorf("%w: task %q", ErrExists, t.ID))
		}
		ids[t.ID] = true
	}
	errs = append(errs, c.validateConstraints(g)...)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("sched: gang %q: %w", g.ID, err)
	}
	return nil
}

func (c *Cluster) validateConstraints(g Gang) []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	before := bound{1, len(c.config.Levels)}
	for i, x := range g.Constraints {
		size, level, prefer := cmp.Or(x.Size, len(g.Tasks)), c.level(x.Within), c.level(cmp.Or(x.Prefer, x.Within))
		switch {
		case level < 0 || prefer < level:
			fault("Constraints[%d]: Within %q, Prefer %q: want one of %q or %q, the preferred one not further out",
				i, x.Within, x.Prefer, c.config.Levels, NodeLevel)
		case size < 1 || size%before.size != 0 || level > before.level:
			fault("Constraints[%d]: Size %d within %q: want a multiple of %d, and no level further in than the one before",
				i, size, x.Within, before.size)
		case len(g.Tasks)%size != 0:
			fault("Constraints[%d]: Size %d: want it to divide %d tasks", i, size, len(g.Tasks))
		default:
			before = bound{size, level}
		}
	}
	if len(g.Constraints) == 0 {
		return errs
	}
	for i, t := range g.Tasks {
		if !slices.Equal(appendKey(nil, t.normal(), t.Prefer), appendKey(nil, g.Tasks[0].normal(), g.Tasks[0].Prefer)) ||
			t.MemoryBytes != g.Tasks[0].MemoryBytes {
			fault("Tasks[%d] %q asks for other resources than Tasks[0]: constraints want them equal", i, t.ID)
			break
		}
	}
	return errs
}

// level is the number of a level, outermost 0, or -1.
func (c *Cluster) level(name string) int {
	if name == NodeLevel {
		return len(c.config.Levels)
	}
	return slices.Index(c.config.Levels, name)
}

// PlaceGang places a gang, all of it or at least Min tasks, or nothing. It returns the
// placements in the order of the ranks. The error wraps ErrInfeasible if it would not fit
// in an empty cluster, ErrNoRoom if it does not fit now, ErrExists, or says what is not
// valid.
func (c *Cluster) PlaceGang(g Gang) ([]Placement, error) {
	if err := c.validateGang(g); err != nil {
		return nil, err
	}
	placements, err := c.tryGang(g)
	if err != nil {
		if !c.everPlaces(func(c *Cluster) error { _, err := c.tryGang(g); return err }) {
			err = ErrInfeasible
		}
		return nil, fmt.Errorf("%w: gang %q of %d tasks", err, g.ID, len(g.Tasks))
	}
	for _, t := range g.Tasks[:len(placements)] {
		c.learn(t.Request)
	}
	return placements, nil
}

// tryGang places a gang or nothing.
func (c *Cluster) tryGang(g Gang) ([]Placement, error) {
	least := cmp.Or(g.Min, len(g.Tasks))
	if len(g.Constraints) == 0 {
		return c.placeOneByOne(g, least)
	}
	required, preferred := make([]bound, len(g.Constraints)), make([]bound, len(g.Constraints))
	for i, x := range g.Constraints {
		size := cmp.Or(x.Size, len(g.Tasks))
		required[i] = bound{size, c.level(x.Within)}
		preferred[i] = bound{size, c.level(cmp.Or(x.Prefer, x.Within))}
	}
	parts := c.divide(g, preferred, len(g.Tasks))
	if parts == nil {
		parts = c.divide(g, required, least)
	}
	if parts == nil {
		return nil, ErrNoRoom
	}
	made := &gang{min: least}
	var placements []Placement
	for _, p := range parts {
		for range p.count {
			t := g.Tasks[len(placements)]
			cl := c.classOf(t.Request, t.Prefer)
			placements = append(placements, c.join(made, t, choice{p.host, c.devicesFor(cl, p.host)}))
		}
	}
	return placements, nil
}

// placeOneByOne is for gangs that may lie anywhere.
func (c *Cluster) placeOneByOne(g Gang, least int) ([]Placement, error) {
	made := &gang{min: least}
	var placements []Placement
	for i := range g.Tasks {
		ch, err := c.decide(&g.Tasks[i])
		if err == nil {
			placements = append(placements, c.join(made, g.Tasks[i], ch))
		} else if len(placements) < least && len(g.Tasks)-i-1+len(placements) < least {
			ids := make([]int32, len(placements))
			for i, p := range placements {
				ids[i] = c.byID[p.Task]
			}
			c.undo(ids)
			return nil, err
		}
	}
	return placements, nil
}

// join places a task as a member of a gang.
func (c *Cluster) join(made *gang, t Task, ch choice) Placement {
	p := c.commit(t, ch)
	made.enter(&c.records[c.byID[t.ID]])
	return p
}

// enter notes that a record is a member.
func (g *gang) enter(r *record) {
	r.gang = g
	g.running++
	if r.task.Preemptible {
		g.guard = max(g.guard, r.task.Priority)
	} else {
		g.guard = MaxPriority
	}
}

// times is how often a node takes a need.
func (h *host) times(n need, memory int64) int {
	most := MaxGang
	limit := func(have, each int64) {
		if each > 0 {
			most = min(most, int(have/each))
		}
	}
	limit(int64(h.shape.cpu), int64(n.cpu))
	limit(h.memory, memory)
	for _, x := range n.custom {
		limit(int64(h.custom[x.index]), int64(x.amount))
	}
	switch n.devices {
	case 0:
		return most
	case 1:
		fractions := 0
		for _, free := range h.free[:h.count] {
			fractions += int(Milli(free) / n.share)
		}
		return min(most, fractions)
	}
	left := h.shape
	for k := range most {
		set := left.tightest(n.share, n.devices)
		if set.Len() < n.devices {
			return k
		}
		left.take(0, set, n.share)
	}
	return most
}
