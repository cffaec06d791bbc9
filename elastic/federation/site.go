package federation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
)

// Action is what a site has to do.
type Action struct {
	Copy
	// Gang is what to start; a copy is stopped if it has no tasks, within Config.Grace, and
	// Stopped is called when it has.
	Gang sched.Gang
}

// Starts reports whether the copy is to be started.
func (a Action) Starts() bool { return len(a.Gang.Tasks) > 0 }

// held is a copy on the site.
type held struct {
	Copy
	state    State
	stopping bool
	until    time.Duration // end of the lease
	told     bool          // its state was in the latest report
}

// Site is the part of a federation that one cluster plays.
type Site struct {
	config      Config
	name        string
	incarnation uint64
	term        uint64        // of the Home that was obeyed last
	sent        time.Duration // of the latest report
	asked       bool          // the latest report has no answer yet
	copies      map[string]*held
}

// NewSite returns a site that runs nothing. Its incarnation is larger than those of all sites that
// had this name before. The error names every field that is out of bounds.
func NewSite(c Config, name string, incarnation uint64) (*Site, error) {
	c, err := c.WithDefaults()
	if err == nil && name == "" {
		err = fmt.Errorf("federation: name of a site is empty")
	}
	if err != nil {
		return nil, err
	}
	return &Site{config: c, name: name, incarnation: incarnation, sent: math.MinInt64, copies: make(map[string]*held)}, nil
}

// Report returns what to tell Home now, with what is free of devices. Orders that answer earlier
// reports do not count any more, so the next report waits for the answer, or for Config.Interval.
func (s *Site) Report(now time.Duration, free sched.Milli) Report {
	s.sent, s.asked = max(now, s.sent+1), true
	r := Report{Site: s.name, Incarnation: s.incarnation, Term: s.term, Sent: s.sent, Free: free}
	for _, h := range s.sorted() {
		h.told = h.state != Running
		r.Copies = append(r.Copies, Held{h.Copy, h.state})
	}
	return r
}

// Obey takes an order and returns what is to be done for it. One that does not answer the
// latest report, or is of a Home before the one that was obeyed last, changes nothing.
func (s *Site) Obey(now time.Duration, o Order) []Action {
	if !s.asked || o.Site != s.name || o.Incarnation != s.incarnation || o.Sent != s.sent || o.Term < s.term {
		return nil
	}
	heard := o.Term == s.term // a Home that has just begun has not listened yet
	s.asked, s.term = false, o.Term
	keep := make(map[Copy]bool, len(o.Keep))
	for _, c := range o.Keep {
		keep[c] = true
	}
	until := o.Sent + s.config.Lease
	var actions []Action
	for _, h := range s.sorted() {
		switch {
		case h.state != Running:
			if h.told && heard {
				delete(s.copies, h.Job)
			}
		case keep[h.Copy]:
			h.until = max(h.until, until)
		default:
			actions = append(actions, s.stop(h)...)
		}
	}
	for _, start := range o.Start {
		if s.copies[start.Job] != nil || until-s.config.Grace <= now {
			continue // an earlier copy is still being stopped, or the order was long on its way
		}
		s.copies[start.Job] = &held{Copy: start.Copy, until: until}
		actions = append(actions, Action(start))
	}
	return append(actions, s.Expire(now)...)
}

// stop is the action that ends a copy, once.
func (s *Site) stop(h *held) []Action {
	if h.stopping {
		return nil
	}
	h.stopping = true
	return []Action{{Copy: h.Copy}}
}

// Expire returns the copies that have to be stopped because nobody has renewed their lease.
func (s *Site) Expire(now time.Duration) []Action {
	var actions []Action
	for _, h := range s.sorted() {
		if h.state == Running && now >= h.until-s.config.Grace {
			actions = append(actions, s.stop(h)...)
		}
	}
	return actions
}

// Deadline returns when Expire has something to return if nothing comes before, and false if never.
func (s *Site) Deadline() (time.Duration, bool) {
	first, found := time.Duration(math.MaxInt64), false
	for _, h := range s.copies {
		if h.state == Running && !h.stopping {
			first, found = min(first, h.until-s.config.Grace), true
		}
	}
	return first, found
}

// Refused says that a copy found no room, or had to go for another job of the cluster and has
// stopped.
func (s *Site) Refused(c Copy) { s.over(c, Refused) }

// Ended says that a copy is done.
func (s *Site) Ended(c Copy) { s.over(c, Ended) }

// Stopped says that a copy that was to be stopped does not run any more.
func (s *Site) Stopped(c Copy) {
	if h := s.copies[c.Job]; h != nil && h.Copy == c && h.stopping {
		delete(s.copies, c.Job)
	}
}

func (s *Site) over(c Copy, state State) {
	if h := s.copies[c.Job]; h != nil && h.Copy == c && h.state == Running {
		h.state, h.stopping = state, false
	}
}

func (s *Site) sorted() []*held {
	list := make([]*held, 0, len(s.copies))
	for _, h := range s.copies {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b *held) int { return cmp.Compare(a.Job, b.Job) })
	return list
}
