package sched

import (
	"errors"
	"fmt"
)

// MaxPriority is the highest priority of a task; the lowest is 0.
const MaxPriority = 9

// Task is what is placed on one node. Its request may not change while it is placed.
type Task struct {
	// ID names the task in its cluster.
	ID string
	Request
	// Priority is 0 to MaxPriority. A task may take the place of preemptible ones of
	// lower priority, never of equal priority.
	Priority int
	// Preemptible tasks may be evicted for tasks of higher priority.
	Preemptible bool
	// Movable tasks may be moved to another node while they run.
	Movable bool
	// Drain asks that the task be told and waited for before it is evicted or moved, as
	// a parameter server that must hand over its shards.
	Drain bool
	// Near names nodes that hold the data of the task. One of them is taken if it has
	// room.
	Near []string
	// Prefer ranks models and vendors by name, -MaxPrefer to MaxPrefer, 0 if they are not
	// named; what a node's model and vendor have counts together. One of higher rank is
	// taken if it has room, whatever the policy says.
	Prefer map[string]int
	// Group names the placement group whose bundle Bundle the task runs in; it takes
	// from the whole cluster if empty.
	Group  string
	Bundle int
	// Tenant is who is charged by Config.Meter; in a group it is the tenant of the group.
	Tenant string
}

// MaxIDBytes bounds the ID of a task or a gang.
const MaxIDBytes = 1024

// MaxPrefer bounds Task.Prefer.
const MaxPrefer = 1000

// Validate reports every fault of the task at once, each with its value and bound.
func (t Task) Validate() error { return prefixed(t.check()) }

func (t *Task) check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.ID == "" {
		fault("ID is empty")
	} else if len(t.ID) > MaxIDBytes || t.ID[0] == 0 {
		fault("ID %.32q of %d bytes: want at most %d, the first of them not 0", t.ID, len(t.ID), MaxIDBytes)
	}
	if t.Priority < 0 || t.Priority > MaxPriority {
		fault("Priority %d: want 0 to %d", t.Priority, MaxPriority)
	}
	if t.Bundle < AnyBundle || t.Group == "" && t.Bundle != 0 {
		fault("Bundle %d of group %q: want at least %d, and the name of a group", t.Bundle, t.Group, AnyBundle)
	}
	for name, rank := range t.Prefer {
		if rank < -MaxPrefer || rank > MaxPrefer {
			fault("Prefer[%q] %d: want %d to %d", name, rank, -MaxPrefer, MaxPrefer)
		}
	}
	if err := t.Request.check(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("task %.64q: %w", t.ID, errors.Join(errs...))
	}
	return nil
}
