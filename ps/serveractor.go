package ps

import (
	"fmt"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// The control side of a server: the orders that it gets, and its reports.

// obeys returns an error if a later coordinator than that of a term is known, and takes
// note of a new one.
func (s *Server) obeys(term uint64) error {
	for {
		known := s.term.Load()
		if term < known {
			return fmt.Errorf("%w: server %q has heard of term %d, this is %d", ErrDeposed, s.cfg.ID, known, term)
		}
		if s.term.CompareAndSwap(known, term) {
			return nil
		}
	}
}

// serverActor is the control side of a Server.
type serverActor struct {
	s      *Server
	load   ServerLoad // as it was last reported
	next   shard.ID   // first shard of the copies in the next report
	counts shard.ID   // and of the counts
}

type reportNow struct{}

// reportEarly asks for a report beside the regular ones: a follower is lost, or a server
// that a client cannot reach.
type reportEarly struct{}

// maxLostReported bounds the lost followers in one report; the next ones have the rest.
const maxLostReported = 256

// reportNow is the regular report, with the next page of what the server holds.
func (a *serverActor) reportNow(c *actor.Context) {
	s := a.s
	s.spawn(s.expire)
	a.load = s.load()
	var held []CopyStatus
	held, a.next = s.holding(a.next)
	a.report(c, held)
	c.SendAfter(s.cfg.ReportInterval, reportNow{})
}

func (a *serverActor) report(c *actor.Context, held []CopyStatus) {
	s := a.s
	if s.out.Load() {
		return
	}
	m := serverReport{ID: s.cfg.ID, Run: s.info.Run, Load: a.load}
	m.Counts, a.counts = s.counts(a.counts)
	for _, h := range held {
		m.Copies.add(h)
	}
	for _, r := range s.all() {
		r.mu.Lock()
		for _, id := range r.lost() {
			m.Lost = append(m.Lost, lostFollower{uint32(r.spec.ID), uint64(r.copy.Epoch), id})
		}
		r.mu.Unlock()
		if len(m.Lost) >= maxLostReported {
			break
		}
	}
	_ = c.TryCast(s.coordinator.current(), m) // the next one follows
}

// reportSoon tells the coordinator about followers that were lost just now.
func (s *Server) reportSoon() {
	if s.reporting.CompareAndSwap(false, true) {
		if s.cfg.Node.TryCast(s.ref, reportEarly{}) != nil {
			s.reporting.Store(false)
		}
	}
}

// Started begins the reports.
func (a *serverActor) Started(c *actor.Context) error {
	c.SendAfter(a.s.cfg.ReportInterval, reportNow{})
	return c.Monitor(a.s.coordinator.current())
}

// Receive handles one control message. Steps that take time run beside the actor.
func (a *serverActor) Receive(c *actor.Context, msg any) error {
	s := a.s
	switch m := msg.(type) {
	case command:
		req := c.Request()
		if err := s.obeys(m.Term); err != nil {
			answer(c, err, nil)
			return nil
		}
		if m.Run != s.info.Run {
			answer(c, fmt.Errorf("%w: run %d of server %q, this is run %d", ErrUnavailable, m.Run, s.cfg.ID, s.info.Run), nil)
			return nil
		}
		s.spawn(func() { s.answer(req, m) })
	case saveRequest:
		req := c.Request()
		if req == nil {
			return nil
		}
		if err := s.obeys(m.Term); err != nil {
			req.Fail(err)
			return nil
		}
		s.spawn(func() {
			if m.Arm {
				s.arm(req, m)
			} else {
				s.save(req, m)
			}
		})
	case retain:
		if s.obeys(m.Term) != nil {
			return nil
		}
		for _, r := range s.all() {
			r.retain(m)
		}
	case localRequest:
		c.Reply(s)
	case aliveRequest:
		c.Reply(done{})
	case loadRequest:
		c.Reply(s.load())
	case copiesRequest:
		held, next := s.holding(shard.ID(m.First))
		c.Reply(copiesReply{held, uint32(next)})
	case reportNow:
		a.reportNow(c)
	case reportEarly:
		s.reporting.Store(false)
		a.report(c, nil)
	case actor.Down:
		a.rejoin(c)
	case registerAgain:
		if s.obeys(m.Term) == nil {
			a.rejoin(c)
		}
	}
	return nil
}

// Stopped ends the data side together with the actor, however that ends: the
// coordinator takes a server without an actor for dead.
func (a *serverActor) Stopped(*actor.Context, error) { a.s.closeData() }

func (s *Server) load() ServerLoad {
	l := ServerLoad{Utilization: unknownUtilization}
	window := s.cfg.ReportInterval
	if s.cfg.Device != nil {
		l.Utilization = s.cfg.Device.Usage(5 * window).Busy.Or(unknownUtilization)
	}
	l.PushBytesPerSecond = float64(s.pushBytes.Swap(0)) / window.Seconds()
	l.PullBytesPerSecond = float64(s.pullBytes.Swap(0)) / window.Seconds()
	l.Tables = s.job.tableStatus()
	for _, r := range s.all() {
		r.mu.Lock()
		bytes, counts := r.stateBytes(), r.counts
		if r.copy.Owns() {
			l.Shards++
			l.PushesApplied += r.applied
			if r.table != nil {
				counts.Rows, counts.StateBytes = r.table.Rows(), bytes
			}
		}
		r.mu.Unlock()
		l.StateBytes += bytes
		l.Rows += counts.Rows
		l.RowsSkipped += counts.Refused + counts.NotFinite
		if r.sparse && r.tableNumber < len(l.Tables) {
			l.Tables[r.tableNumber].add(counts)
		}
	}
	return l
}
