package federation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
)

// epochBits is how many bits of an epoch count within a term.
const epochBits = 32

// job is one that Home has.
type job struct {
	Record
	priority int
	given    bool          // Site may run it, until then at the latest
	fresh    bool          // it was given with the order under way
	until    time.Duration // by the clock of Home
	tried    []string      // sites that it was with since all were asked, in this order
	rests    time.Duration // it is not given to anybody before
}

// site is what Home has heard of one.
type site struct {
	incarnation uint64
	sent, heard time.Duration // of its latest report, by its clock and by that of Home
	copies      map[Copy]bool // that were in it
	free        sched.Milli
	jobs        int
}

// Home is the part of a federation that knows all jobs.
type Home struct {
	config Config
	term   uint64
	given  uint64 // in this term
	jobs   map[string]*job
	sites  map[string]*site
	over   []Record // since the last answer
}

// NewHome returns a home with the records that its predecessor has saved, none for the first. Its
// term, at least 1, is higher than those of all before it. The error names every field that is out
// of bounds.
func NewHome(c Config, term uint64, now time.Duration, records []Record) (*Home, error) {
	c, err := c.WithDefaults()
	if term < 1 || term >= 1<<epochBits {
		err = errors.Join(err, fmt.Errorf("federation: term %d: want 1 to %d", term, uint64(1)<<epochBits-1))
	}
	if err != nil {
		return nil, err
	}
	h := &Home{config: c, term: term, jobs: make(map[string]*job), sites: make(map[string]*site)}
	for _, r := range records {
		if r.Over {
			continue
		}
		if err := r.Job.validate(); err != nil {
			return nil, err
		}
		// The order that gave it may have gone out just before.
		h.jobs[r.Job.ID] = &job{Record: r, priority: r.Job.priority(), given: r.Site != "", until: now + c.hold(), rests: now}
	}
	return h, nil
}

// Submit takes a job. It returns the record to save before anybody is told that it was taken; the
// error wraps ErrExists or says what is wrong with the job.
func (h *Home) Submit(j Job) (Record, error) {
	if err := j.validate(); err != nil {
		return Record{}, err
	}
	if h.jobs[j.ID] != nil {
		return Record{}, fmt.Errorf("%w: job %q", ErrExists, j.ID)
	}
	h.jobs[j.ID] = &job{Record: Record{Job: j}, priority: j.priority(), rests: math.MinInt64}
	return h.jobs[j.ID].Record, nil
}

// Cancel ends a job. It is stopped with the next order to its site, or when its lease ends; its
// name can be used again when Where does not know it any more. It returns the record to save. The
// error wraps ErrUnknown.
func (h *Home) Cancel(id string) (Record, error) {
	j := h.jobs[id]
	if j == nil {
		return Record{}, fmt.Errorf("%w: job %q", ErrUnknown, id)
	}
	j.Cancelled = true
	if !j.given {
		j.Over = true
		delete(h.jobs, id)
	}
	return j.Record, nil
}

// Where says on which site a job may be running, empty if on none. The error wraps ErrUnknown.
func (h *Home) Where(now time.Duration, id string) (string, error) {
	h.expire(now)
	j := h.jobs[id]
	switch {
	case j == nil:
		return "", fmt.Errorf("%w: job %q", ErrUnknown, id)
	case !j.given:
		return "", nil
	}
	return j.Site, nil
}

// Answer takes a report and returns the order for its site, and the records that have to be saved
// before the order is sent. It returns false for a report to which there is no answer: it came late
// or twice, or there are too many sites or copies in it.
func (h *Home) Answer(now time.Duration, r Report) (Order, []Record, bool) {
	s := h.sites[r.Site]
	switch {
	case len(r.Copies) > 2*MaxCopies, s == nil && len(h.sites) == MaxSites:
		return Order{}, nil, false
	case s == nil:
		s = &site{sent: math.MinInt64}
		h.sites[r.Site] = s
	case r.Incarnation < s.incarnation, r.Incarnation == s.incarnation && r.Sent <= s.sent:
		return Order{}, nil, false
	}
	s.incarnation, s.sent, s.heard, s.free = r.Incarnation, r.Sent, now, r.Free
	s.copies = make(map[Copy]bool, len(r.Copies))
	for _, c := range r.Copies {
		s.copies[c.Copy] = true
	}
	h.expire(now)
	order := Order{Site: r.Site, Incarnation: r.Incarnation, Term: h.term, Sent: r.Sent}
	if r.Term == h.term {
		h.hear(now, r)
		h.renew(now, s, &order, MaxStarts)
		h.give(now, s, &order)
	} else {
		// It may have been under way since before this Home began, and other reports after
		// it: nothing of what it says counts but that the site is there.
		h.renew(now, s, &order, 0)
	}
	over := h.over
	h.over = nil
	for _, j := range h.sorted() {
		if j.fresh {
			j.fresh = false
			over = append(over, j.Record)
		}
	}
	return order, over, true
}

// give gives jobs to a site.
func (h *Home) give(now time.Duration, s *site, order *Order) {
	for _, j := range h.sorted() {
		if len(order.Start) == MaxStarts || s.jobs == MaxCopies {
			return
		}
		if j.given || now < j.rests || h.best(now, j) != order.Site {
			continue
		}
		h.given++
		j.given, j.fresh, j.Site, j.Epoch = true, true, order.Site, h.term<<epochBits|h.given
		j.until = now + h.config.hold()
		order.Start = append(order.Start, Start{Copy{j.Job.ID, j.Epoch}, j.Job.Gang})
		s.jobs++
		s.free -= j.Job.devices()
	}
}

// renew lets a site keep the jobs that it has, and starts those again that it should have.
func (h *Home) renew(now time.Duration, s *site, order *Order, maxStarts int) {
	s.jobs = 0
	for _, j := range h.sorted() {
		if !j.given || j.Site != order.Site || j.Cancelled {
			continue
		}
		s.jobs++
		c := Copy{j.Job.ID, j.Epoch}
		switch {
		case s.copies[c]:
			order.Keep = append(order.Keep, c)
		case len(order.Start) < maxStarts:
			order.Start = append(order.Start, Start{c, j.Job.Gang})
		default:
			continue // with the next order, if it comes in time
		}
		j.until = now + h.config.hold()
	}
}

// hear notes what a site says about its copies.
func (h *Home) hear(now time.Duration, r Report) {
	runs := make(map[Copy]bool)
	for _, c := range r.Copies {
		j := h.jobs[c.Job]
		if j == nil || !j.given || j.Site != r.Site || j.Epoch != c.Epoch {
			continue // a copy of former times, whose lease ends or has ended
		}
		switch c.State {
		case Running:
			runs[c.Copy] = true
		case Ended:
			h.remove(j)
		case Refused:
			h.free(now, j)
		}
	}
	for _, j := range h.sorted() {
		if j.Cancelled && j.given && j.Site == r.Site && !runs[Copy{j.Job.ID, j.Epoch}] {
			h.remove(j)
		}
	}
}

// expire frees the jobs whose lease must have ended.
func (h *Home) expire(now time.Duration) {
	for _, j := range h.sorted() {
		if j.given && now > j.until {
			h.free(now, j)
		}
	}
}

// remove forgets a job of which nothing runs.
func (h *Home) remove(j *job) {
	j.Over = true
	h.over = append(h.over, j.Record)
	delete(h.jobs, j.Job.ID)
}

// free lets a job go to any site, after the others to the one that had it.
func (h *Home) free(now time.Duration, j *job) {
	j.given = false
	if j.Cancelled {
		h.remove(j)
		return
	}
	j.tried = append(j.tried, j.Site)
	j.rests = now
	for name, s := range h.sites {
		if h.fresh(now, s) && !slices.Contains(j.tried, name) {
			return
		}
	}
	j.tried, j.rests = j.tried[len(j.tried)-1:], now+h.config.Retry // the one that had it is the last again
}

// fresh reports whether a site is heard of.
func (h *Home) fresh(now time.Duration, s *site) bool { return now-s.heard <= h.config.hold() }

// best is the site that a job is offered to, empty if there is none: of those that are heard of
// one that it has not been with, if there is one.
func (h *Home) best(now time.Duration, j *job) string {
	best := ""
	rank := func(name string) int {
		if i := slices.Index(j.Job.Prefer, name); i >= 0 {
			return i
		}
		return len(j.Job.Prefer)
	}
	tried := func(name string) int { return slices.Index(j.tried, name) }
	for name, s := range h.sites {
		if h.fresh(now, s) && (best == "" || cmp.Or(cmp.Compare(tried(name), tried(best)), cmp.Compare(rank(name), rank(best)),
			cmp.Compare(h.sites[best].free, s.free), cmp.Compare(name, best)) < 0) {
			best = name
		}
	}
	return best
}

// sorted are the jobs, those of higher priority first.
func (h *Home) sorted() []*job {
	list := make([]*job, 0, len(h.jobs))
	for _, j := range h.jobs {
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b *job) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.Job.ID, b.Job.ID))
	})
	return list
}
