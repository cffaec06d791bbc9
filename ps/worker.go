package ps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
)

// Worker is a client that is a member of the job: its clock counts for BSP and SSP.
// Its actor is watched by the coordinator, so that a worker that dies does not hold
// the others.
type Worker struct{ *Client }

// StartWorker joins a job and returns when the worker is a member. It starts at the
// clock that the others are working on.
func StartWorker(ctx context.Context, cfg ClientConfig) (*Worker, error) {
	c, err := dialJob(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	return &Worker{c}, nil
}

// Clock returns the clock that the worker is working on.
func (w *Worker) Clock() uint32 { return w.clock.Load() }

// Tick finishes the worker's clock and returns when it may begin the next one: at
// once under ASP, when the slowest member is near enough under SSP, when all have
// finished under BSP. All pushes must have returned; Tick and pushes of one worker
// must not overlap. Errors: ErrNotMember, or the context's with the last cause;
// then the clock has not advanced here and Tick may be called again.
func (w *Worker) Tick(ctx context.Context) error {
	if err := w.ctx.Err(); err != nil {
		return fmt.Errorf("%w: worker %q", ErrClosed, w.cfg.Name)
	}
	ctx, cancel := bounded(ctx, w.cfg.Timeout)
	defer cancel()
	clock := w.clock.Load()
	r, err := ask[tickReply](ctx, w.cfg.Node, w.coordinator, tickRequest{Incarnation: w.incarnation.Load(), Clock: clock})
	if err != nil {
		return fmt.Errorf("ps: worker %q at clock %d: %w", w.cfg.Name, clock, err)
	}
	w.clock.Store(r.Clock)
	return nil
}

// Leave ends the membership; the others go on without this worker at once.
func (w *Worker) Leave(ctx context.Context) error { return w.leave(ctx) }

// WorkerLoad is what a worker has seen of its own requests.
type WorkerLoad struct {
	PushesSent         uint64 // parts of pushes: one per block of a shard
	PushesAcknowledged uint64
	Servers            []LatencySummary // of the pushes of the last seconds, by server
}

// LatencySummary is the time from sending a push to its acknowledgement.
type LatencySummary struct {
	Server   shard.ServerID
	P50, P99 time.Duration
	Count    int
}

// latencyWindow is how long a measured latency counts.
const latencyWindow = 2 * time.Second

// latencyMemory is how long a server is remembered that does not answer.
const latencyMemory = time.Minute

type clientStats struct {
	sent, acknowledged atomic.Uint64

	mu      sync.Mutex
	servers map[shard.ServerID]*latencies
}

// latencies is a ring of the last push latencies of one server, and whether it is reached.
type latencies struct {
	made time.Time
	// sought means that somebody looks whether the server can be reached, unreached that
	// it cannot.
	sought, unreached atomic.Bool

	mu    sync.Mutex
	at    [128]time.Time
	value [128]time.Duration
	n     int
}

// of returns the latencies of a server.
func (s *clientStats) of(id shard.ServerID) *latencies {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.servers[id]
	if l == nil {
		if s.servers == nil {
			s.servers = map[shard.ServerID]*latencies{}
		}
		l = &latencies{made: time.Now()}
		s.servers[id] = l
	}
	return l
}

// answered takes note of an acknowledged call.
func (s *clientStats) answered(k *call) {
	if k.seqs == nil {
		return
	}
	s.acknowledged.Add(1)
	k.load.add(k.began.Add(k.took), k.took)
}

func (l *latencies) add(at time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[l.n%len(l.at)], l.value[l.n%len(l.at)] = at, took
	l.n++
}

// since returns those noted after t.
func (l *latencies) since(t time.Time) (recent []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range min(l.n, len(l.at)) {
		if l.at[i].After(t) {
			recent = append(recent, l.value[i])
		}
	}
	return recent
}

func (s *clientStats) load() WorkerLoad {
	w := WorkerLoad{PushesSent: s.sent.Load(), PushesAcknowledged: s.acknowledged.Load()}
	horizon := time.Now().Add(-latencyWindow)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.servers {
		recent := l.since(horizon)
		if len(recent) == 0 {
			continue
		}
		slices.Sort(recent)
		w.Servers = append(w.Servers, LatencySummary{
			Server: id, P50: recent[len(recent)/2], P99: recent[len(recent)*99/100], Count: len(recent),
		})
	}
	slices.SortFunc(w.Servers, func(a, b LatencySummary) int { return cmp.Compare(a.Server, b.Server) })
	return w
}

// forget drops the latencies of servers that have not answered for long. It reports
// whether there were any: paths still refer to them.
func (s *clientStats) forget() (dropped bool) {
	horizon := time.Now().Add(-latencyMemory)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.servers {
		if l.made.Before(horizon) && len(l.since(horizon)) == 0 && !l.sought.Load() {
			delete(s.servers, id)
			dropped = true
		}
	}
	return dropped
}

// Load returns what this client has sent and how long it took.
func (c *Client) Load() WorkerLoad { return c.stats.load() }

// clientActor is the control side of a Client.
type clientActor struct{ c *Client }

// Started begins the reports and watches the coordinator.
func (a *clientActor) Started(c *actor.Context) error {
	c.SendAfter(a.c.cfg.ReportInterval, reportNow{})
	return c.Monitor(a.c.coordinator.current())
}

// Receive handles one control message.
func (a *clientActor) Receive(ctx *actor.Context, msg any) error {
	c := a.c
	switch m := msg.(type) {
	case routesChanged:
		c.routes.learn(m)
	case aliveRequest:
		ctx.Reply(done{})
	case reportNow:
		c.report(ctx.Node())
		if c.stats.forget() {
			c.routes.version.Add(1) // the paths are looked up again
		}
		ctx.SendAfter(c.cfg.ReportInterval, reportNow{})
	case reportEarly:
		c.report(ctx.Node())
	case actor.Down:
		go c.rejoin(ctx)
	}
	return nil
}

// rejoin tells a coordinator that comes back who is here.
func (c *Client) rejoin(actx *actor.Context) {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, joinTimeout)
		_, from, err := c.join(ctx)
		cancel()
		if err == nil {
			_ = actx.Monitor(from) // a failure shows as another Down
			return
		}
		if errors.Is(err, ErrNotMember) {
			c.cfg.Logger.Warn("client is no member any more", "client", c.cfg.Name, "err", err)
			return
		}
		sleep(c.ctx, rejoinPause)
	}
}
