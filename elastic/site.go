package elastic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/federation"
	"github.com/elasticps/elasticps/elastic/sched"
)

// SiteConfig is what a Site of a federation needs. What has no default is required.
type SiteConfig struct {
	// Name of the site in the federation.
	Name string
	// Homes are those that may be Home. The node has to be connected with theirs.
	Homes []actor.Ref
	// Scheduler finds the room for jobs.
	Scheduler *Scheduler
	// Run runs a job where the scheduler has placed it, and returns nil when it is done. When ctx ends
	// it stops the job and returns an error, within Federation.Grace: another site may run it
	// afterwards. With any other error the job goes to another site.
	Run func(ctx context.Context, job federation.Start, placements []sched.Placement) error
	// Federation is the same for Home and all sites.
	Federation federation.Config
	// Incarnation is larger than that of every site of this name before: a counter that somebody
	// keeps, or the time of day if it does not go back.
	Incarnation uint64
	// Logger gets a line for every job that starts, stops or is over. Zero: nothing is logged.
	Logger *slog.Logger
}

func (c SiteConfig) withDefaults() (SiteConfig, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	c.Federation, err = c.Federation.WithDefaults()
	if c.Scheduler == nil || c.Run == nil {
		err = errors.Join(err, errors.New("elastic: SiteConfig without Scheduler or Run"))
	}
	if c.Incarnation == 0 {
		err = errors.Join(err, errors.New("elastic: SiteConfig.Incarnation is 0: want at least 1"))
	}
	if len(c.Name) > maxJobIDBytes {
		err = errors.Join(err, fmt.Errorf("elastic: SiteConfig.Name of %d bytes: want at most %d", len(c.Name), maxJobIDBytes))
	}
	if len(c.Homes) < 1 || len(c.Homes) > maxRefsToHomes {
		err = errors.Join(err, fmt.Errorf("elastic: SiteConfig with %d Homes: want 1 to %d", len(c.Homes), maxRefsToHomes))
	}
	return c, err
}

// Site runs the jobs of a federation on one cluster, as long as Home lets it. All that it decides
// is in federation.Site.
type Site struct {
	config SiteConfig
	node   *actor.Node
	began  time.Time
	end    context.CancelFunc
	wake   chan struct{} // something is to be told
	leased chan struct{} // a lease has begun
	loop   sync.WaitGroup
	runs   sync.WaitGroup

	mu      sync.Mutex
	site    *federation.Site
	running map[string]*siteRun // by job
	epochs  map[uint64]federation.Copy
	home    actor.Ref
	heard   bool // home has answered the last report
	closed  bool
}

// siteRun is a job that runs, is starting or is stopping.
type siteRun struct {
	federation.Start
	cancel  context.CancelFunc
	evicted bool
}

// StartSite starts a site on a node. The error names every fault of the configuration.
func StartSite(node *actor.Node, c SiteConfig) (*Site, error) {
	c, faults := c.withDefaults()
	site, err := federation.NewSite(c.Federation, c.Name, c.Incarnation)
	if err := errors.Join(faults, err); err != nil {
		return nil, err
	}
	if err := registerFederation(node); err != nil {
		return nil, fmt.Errorf("elastic: start site: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Site{
		config: c, node: node, began: time.Now(), end: cancel, wake: make(chan struct{}, 1), leased: make(chan struct{}, 1),
		site: site, running: make(map[string]*siteRun), epochs: make(map[uint64]federation.Copy),
	}
	s.loop.Go(func() { s.converse(ctx) })
	s.loop.Go(func() { s.expire(ctx) })
	return s, nil
}

func (s *Site) now() time.Duration { return time.Since(s.began) }

// Close stops all jobs of the site, waits for their Run to return, and tells Home, which gives
// them to others. Twice is fine.
func (s *Site) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	for _, r := range s.running {
		r.evicted = true
		r.cancel()
	}
	s.mu.Unlock()
	s.runs.Wait()
	s.end()
	s.loop.Wait()
	if !closed {
		ctx, cancel := context.WithTimeout(context.Background(), s.config.Federation.Interval)
		defer cancel()
		for at := range s.config.Homes {
			if _, err := s.report(ctx, at); err == nil {
				break // the others need not know; if none does, the leases end
			}
		}
	}
	return nil
}

// Evicted tells that a task has had to go for another one, as SchedulerConfig.Evicted does. The
// job that it belongs to stops here, and goes to another site.
func (s *Site) Evicted(task sched.Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		for _, t := range r.Gang.Tasks {
			if t.ID == task.ID {
				r.evicted = true
				r.cancel()
			}
		}
	}
}

// hear takes the answer to a report.
func (s *Site) hear(home int, order siteOrder, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard = err == nil; s.heard {
		s.home = s.config.Homes[home]
		s.act(s.site.Obey(s.now(), order.order(s.epochs)))
	}
}

// Home returns the Home that has answered the last report, and false if none has.
func (s *Site) Home() (actor.Ref, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.home, s.heard
}

// Jobs returns the copies that run, start or stop here now, by job.
func (s *Site) Jobs() map[string]federation.Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := make(map[string]federation.Copy, len(s.running))
	for id, r := range s.running {
		jobs[id] = r.Copy
	}
	return jobs
}

// converse reports to the Home, each Interval, or at once when something has ended. When one does not
// answer as Home, it asks the next.
func (s *Site) converse(ctx context.Context) {
	home, failed := 0, 0
	for ctx.Err() == nil {
		next := time.Now().Add(s.config.Federation.Interval)
		attempt, cancel := context.WithDeadline(ctx, next)
		order, err := s.report(attempt, home)
		cancel()
		s.hear(home, order, err)
		if err != nil {
			home = (home + 1) % len(s.config.Homes)
			if failed++; failed < len(s.config.Homes) {
				continue // another one is Home
			}
		}
		failed = 0
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-time.After(time.Until(next)):
		}
	}
}

// report asks one Home what this site may run.
func (s *Site) report(ctx context.Context, home int) (siteOrder, error) {
	left, err := s.config.Scheduler.AvailableResources(ctx)
	if err != nil {
		return siteOrder{}, err
	}
	s.mu.Lock()
	m := reportMessage(s.site.Report(s.now(), left.Accelerator()))
	s.mu.Unlock()
	return actor.Call[siteOrder](ctx, s.node, s.config.Homes[home], m)
}

// expire stops what nobody has renewed, whatever becomes of reports meanwhile.
func (s *Site) expire(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		s.act(s.site.Expire(s.now()))
		deadline, some := s.site.Deadline()
		s.mu.Unlock()
		var due <-chan time.Time
		if some {
			due = time.After(deadline - s.now())
		}
		select {
		case <-ctx.Done():
		case <-s.leased:
		case <-due:
		}
	}
}

// act does what federation.Site wants. The caller holds the lock.
func (s *Site) act(actions []federation.Action) {
	for _, a := range actions {
		switch r := s.running[a.Job]; {
		case !a.Starts() && r != nil && r.Copy == a.Copy:
			s.config.Logger.Info("[Federation] Stops", "site", s.config.Name, "job", a.Job, "epoch", a.Epoch)
			r.cancel()
		case a.Starts() && s.closed:
			s.site.Refused(a.Copy)
		case a.Starts():
			ctx, cancel := context.WithCancel(context.Background())
			r := &siteRun{Start: federation.Start(a), cancel: cancel}
			s.running[a.Job], s.epochs[a.Epoch] = r, a.Copy
			s.runs.Go(func() { s.run(ctx, r) })
			select {
			case s.leased <- struct{}{}:
			default:
			}
		}
	}
}

// run runs a job to its end, and says what became of it.
func (s *Site) run(ctx context.Context, r *siteRun) {
	defer r.cancel()
	placements, err := s.config.Scheduler.PlaceGang(context.WithoutCancel(ctx), r.Gang)
	if err == nil {
		s.config.Logger.Info("[Federation] Starts", "site", s.config.Name, "job", r.Job, "epoch", r.Epoch)
		err = s.config.Run(ctx, r.Start, placements)
		s.release(r)
	}
	s.config.Logger.Info("[Federation] Ended", "site", s.config.Name, "job", r.Job, "epoch", r.Epoch, "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, r.Job)
	delete(s.epochs, r.Epoch)
	switch {
	case err == nil:
		s.site.Ended(r.Copy)
	case ctx.Err() == nil || r.evicted:
		s.site.Refused(r.Copy)
	}
	s.site.Stopped(r.Copy) // if it was told to; otherwise it is told of with the next report
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// release gives back the room of a job.
func (s *Site) release(r *siteRun) {
	ctx, cancel := context.WithTimeout(context.Background(), actor.DefaultCallTimeout)
	defer cancel()
	for _, t := range r.Gang.Tasks {
		if err := s.config.Scheduler.Release(ctx, t.ID); err != nil && !errors.Is(err, sched.ErrUnknown) {
			s.config.Logger.Warn("[Federation] Release", "site", s.config.Name, "job", r.Job, "task", t.ID, "err", err)
		}
	}
}
