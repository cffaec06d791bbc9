package training

import (
	"fmt"
	"time"
)

const (
	lostAfter       = 10 * time.Second
	workerlessAfter = 30 * time.Second
)

// stall finds out that a training cannot go on. It is plain data: the caller has the
// clock.
type stall struct {
	step   int
	lost   time.Time // since when nothing was done while shards are out of reach; zero if none is
	joined bool      // a worker was there
	left   time.Time // zero while one is
}

// check returns why the training cannot be finished, if so. For the first worker it
// waits without a bound.
func (s *stall) check(now time.Time, p Progress, out Stranded) error {
	if out.Shards == 0 {
		s.lost = time.Time{}
	} else if p.Step != s.step || s.lost.IsZero() {
		s.lost = now
	}
	s.step = p.Step
	if p.Workers > 0 {
		s.joined, s.left = true, time.Time{}
	} else if s.left.IsZero() {
		s.left = now
	}
	switch {
	case p.Done:
		return nil
	case !s.lost.IsZero() && now.Sub(s.lost) >= lostAfter:
		return fmt.Errorf("training: server %q is down and %d shards are lost: no step after %d of %d was done for %v",
			out.Server, out.Shards, p.Step, p.Steps, lostAfter)
	case s.joined && p.Workers == 0 && now.Sub(s.left) >= workerlessAfter:
		return fmt.Errorf("training: no worker is left for %v after step %d of %d", workerlessAfter, p.Step, p.Steps)
	}
	return nil
}
