package ps

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/elasticps/elasticps/actor"
)

// MaxStandbys bounds the standbys of a job.
const MaxStandbys = 15

// candidates are the processes of which one is to answer a request: where the
// coordinator of a job runs, or may run.
type candidates struct {
	refs []actor.Ref
	last atomic.Int32 // which one has answered last
}

// only is the one process that may answer.
func only(ref actor.Ref) *candidates { return &candidates{refs: []actor.Ref{ref}} }

// coordinators are where the coordinator may run.
func coordinators(first actor.Ref, standbys []actor.Ref) *candidates {
	return &candidates{refs: append([]actor.Ref{first}, standbys...)}
}

// current is the one that has answered last, for what needs no answer.
func (c *candidates) current() actor.Ref { return c.refs[c.last.Load()] }

// String names them all.
func (c *candidates) String() string {
	if len(c.refs) == 1 {
		return c.refs[0].String()
	}
	return fmt.Sprint(c.refs)
}

func checkStandbys(standbys []actor.Ref) error {
	if len(standbys) > MaxStandbys {
		return fmt.Errorf("ps: %d Standbys, at most %d", len(standbys), MaxStandbys)
	}
	for i, ref := range standbys {
		if ref.IsZero() {
			return fmt.Errorf("ps: Standbys[%d] is zero", i)
		}
	}
	return nil
}

// fromLeader reports whether an error is the answer of the coordinator that leads.
func fromLeader(err error) bool {
	return errors.Is(err, ErrNotPlaced) || errors.Is(err, errReturning) || errors.Is(err, errReplacing) || errors.Is(err, errLeaving) ||
		errors.Is(err, errWaiting) || errors.Is(err, errStoreAway)
}
