package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/sched"
)

// The messages to a scheduler from other nodes. Each is idempotent: a repeated one gets the same
// answer, or tells that what it did is over.

// placeRequest asks for places for the tasks of a gang, or for its only task by itself.
type placeRequest struct {
	Request string // told apart by it
	Gang    sched.Gang
	Single  bool
	Preempt bool
}

type placeReply struct{ Placements []sched.Placement }

type adoptRequest struct {
	Gang       sched.Gang
	Placements []sched.Placement
}

type releaseRequest struct{ Task string }

type placementRequest struct{ Task string }

type resourcesRequest struct{}

type resourcesReply struct{ All, Available sched.Resources }

// registerScheduler makes the messages known to a node.
func registerScheduler(n *actor.Node) error {
	return errors.Join(
		n.Register("sched.place", placeRequest{}), n.Register("sched.placed", placeReply{}),
		n.Register("sched.adopt", adoptRequest{}), n.Register("sched.release", releaseRequest{}), n.Register("sched.placement", placementRequest{}),
		n.Register("sched.where", sched.Placement{}),
		n.Register("sched.resources", resourcesRequest{}), n.Register("sched.resources_reply", resourcesReply{}),
		n.RegisterError("sched.unknown", sched.ErrUnknown), n.RegisterError("sched.exists", sched.ErrExists),
		n.RegisterError("sched.no_room", sched.ErrNoRoom), n.RegisterError("sched.infeasible", sched.ErrInfeasible),
	)
}

const (
	// maxRemembered bounds the tasks whose request is remembered; those of the oldest requests
	// are forgotten first.
	maxRemembered   = 1 << 16
	maxRequestBytes = 128
	// maxPreemptions bounds those that wait for victims to drain.
	maxPreemptions = 64
)

// errand is what a request has come to, or who waits for it.
type errand struct {
	done    bool
	tasks   []string
	waiting []*actor.Request
}

// desk answers requests from other nodes. It belongs to the scheduler's actor.
type desk struct {
	s          *Scheduler
	cluster    *sched.Cluster
	errands    map[string]*errand
	order      []string // of those that are done
	remembered int      // tasks
	running    int      // preemptions
}

// answer handles one message.
func (d *desk) answer(c *actor.Context, msg any) {
	switch m := msg.(type) {
	case placeRequest:
		d.place(c.Request(), m)
	case adoptRequest:
		if err := d.cluster.Adopt(m.Gang, m.Placements); err != nil {
			c.Fail(err)
			return
		}
		c.Reply(nil)
	case releaseRequest:
		// That a task is not there is what was asked for: the answer to an earlier request of
		// the kind may have been lost.
		if err := d.cluster.Release(m.Task); err != nil && !errors.Is(err, sched.ErrUnknown) {
			c.Fail(err)
			return
		}
		c.Reply(nil)
	case placementRequest:
		p, err := d.cluster.Placement(m.Task)
		if err != nil {
			c.Fail(err)
			return
		}
		c.Reply(p)
	case resourcesRequest:
		c.Reply(resourcesReply{d.cluster.ClusterResources(), d.cluster.AvailableResources()})
	default:
		c.Fail(fmt.Errorf("elastic: scheduler: %w: %T", actor.ErrUnknownType, msg))
	}
}

// place does what is asked once, however often it is asked.
func (d *desk) place(req *actor.Request, m placeRequest) {
	o := d.errands[m.Request]
	switch {
	case m.Request == "" || len(m.Request) > maxRequestBytes || len(m.Gang.Tasks) == 0 || m.Single && len(m.Gang.Tasks) > 1:
		req.Fail(fmt.Errorf("elastic: request %.64q of %d bytes for %d tasks: want 1 to %d bytes, and a task, no more if it is single",
			m.Request, len(m.Request), len(m.Gang.Tasks), maxRequestBytes))
	case o == nil && m.Preempt:
		d.preempt(req, m)
	case o == nil:
		placements, err := d.now(m)
		if err != nil {
			req.Fail(err)
			return
		}
		d.errands[m.Request] = &errand{}
		d.finish(m.Request, placements)
		req.Reply(placeReply{placements})
	case !o.done:
		o.waiting = append(o.waiting, req)
	default:
		d.repeat(req, o)
	}
}

// now places without asking anybody to go.
func (d *desk) now(m placeRequest) ([]sched.Placement, error) {
	if !m.Single {
		return d.cluster.PlaceGang(m.Gang)
	}
	p, err := d.cluster.Place(m.Gang.Tasks[0])
	return []sched.Placement{p}, err
}

// repeat answers a request that was carried out before: its tasks are not placed again, even
// if they have gone since.
func (d *desk) repeat(req *actor.Request, o *errand) {
	var placements []sched.Placement
	for _, task := range o.tasks {
		p, err := d.cluster.Placement(task)
		if err != nil {
			req.Fail(fmt.Errorf("elastic: the request was carried out, and its task is over: %w", err))
			return
		}
		placements = append(placements, p)
	}
	req.Reply(placeReply{placements})
}

// preempt begins a preemption, which goes on beside the actor.
func (d *desk) preempt(req *actor.Request, m placeRequest) {
	switch {
	case d.s.ending.Err() != nil:
		req.Fail(actor.ErrClosed)
		return
	case d.running == maxPreemptions:
		req.Fail(fmt.Errorf("elastic: %d preemptions are under way: %w", maxPreemptions, actor.ErrMailboxFull))
		return
	}
	d.errands[m.Request] = &errand{waiting: []*actor.Request{req}}
	d.running++
	d.s.beside.Go(func() {
		ctx, cancel := context.WithDeadline(d.s.ending, req.Deadline())
		defer cancel()
		placements, err := d.s.preemptFor(ctx, m)
		// It fails only when the actor has ended, and with it everybody who waits.
		_ = d.s.settle(ctx, func(*sched.Cluster) error {
			d.running--
			d.ended(m.Request, placements, err)
			return nil
		})
	})
}

// ended answers all who wait for a preemption.
func (d *desk) ended(request string, placements []sched.Placement, err error) {
	waiting := d.errands[request].waiting
	if err == nil {
		d.finish(request, placements)
	} else {
		delete(d.errands, request) // nothing has changed, so it may be tried again
	}
	for _, req := range waiting {
		if err != nil {
			req.Fail(err)
		} else {
			req.Reply(placeReply{placements})
		}
	}
}

// finish remembers what a request has placed.
func (d *desk) finish(request string, placements []sched.Placement) {
	o := d.errands[request]
	o.done, o.waiting = true, nil
	for _, p := range placements {
		o.tasks = append(o.tasks, p.Task)
	}
	d.order = append(d.order, request)
	d.remembered += len(o.tasks)
	for d.remembered > maxRemembered && len(d.order) > 1 {
		d.remembered -= len(d.errands[d.order[0]].tasks)
		delete(d.errands, d.order[0])
		d.order = d.order[1:]
	}
}

// preemptFor carries out a request that may need others to go.
func (s *Scheduler) preemptFor(ctx context.Context, m placeRequest) ([]sched.Placement, error) {
	if m.Single {
		t := m.Gang.Tasks[0]
		return s.preempt(ctx, t.ID, func(c *sched.Cluster) (*sched.Preemption, error) { return c.Preempt(t) })
	}
	return s.preempt(ctx, m.Gang.ID, func(c *sched.Cluster) (*sched.Preemption, error) { return c.PreemptGang(m.Gang) })
}
