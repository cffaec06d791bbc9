package ps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// Several processes may be ready to be the coordinator of a job: the one that holds a
// lease of the coordination store is. It takes for granted a second less than the store
// has promised, in monotonic time, and answers a request in that time or not at all. So
// whoever gets an answer of a coordinator that is none any more has given up waiting
// for it before the next one began.
//
// What it sends without being asked carries its term, and a server that has heard of a
// later term refuses it. What it writes is compared with a revision that the next
// coordinator has changed before it read anything.

const (
	defaultLeaseTTL = 3 * time.Second
	// leaseMargin is how long before the store a coordinator takes its lease for over.
	leaseMargin = attemptTimeout
	minLeaseTTL = leaseMargin + 500*time.Millisecond
	// renewals is how often a lease is renewed while it lasts.
	renewals = 4
	// touches bounds the writes at the same time of a coordinator that takes over.
	touches = 32
)

// leadership is the right to be the coordinator of a job.
type leadership struct {
	kv    store.Store
	lease store.LeaseID
	ttl   time.Duration
	until atomic.Int64 // in the time of since
}

// leader is what the store says about the coordinator that leads.
type leader struct {
	Node string
	Addr string // of the node
}

// holds reports whether the coordinator may act. One that was started without an
// election always may.
func (l *leadership) holds() bool { return l == nil || since() < l.until.Load() }

// StandBy waits until no other coordinator leads the job, and starts the coordinator
// then, as StartCoordinator does: ownership is read, and moves that were under way are
// finished or undone. Every process of a job that may run its coordinator calls it; the
// store, which is required and shared by all of them, elects one. A store that cannot be
// reached is asked again until ctx ends.
//
// A job's coordinators are all started by StandBy or all by StartCoordinator: a coordinator
// that was not elected does not keep another one from being elected, and ends within about
// a second when that happens, with ErrDeposed.
//
// The coordinator ends when its lease could not be renewed in time: then Done is closed
// and Err wraps ErrDeposed. Close it then, and call StandBy again to be ready for the
// next election. Servers, workers and Admin find the new coordinator if its node is among
// their Standbys.
func StandBy(ctx context.Context, cfg CoordinatorConfig) (*Coordinator, error) {
	cfg = cfg.withDefaults()
	err := cfg.validate()
	if cfg.Store == nil {
		err = errors.Join(err, errors.New("ps: CoordinatorConfig.Store is nil, an election needs one that all share"))
	}
	if err != nil {
		return nil, err
	}
	for {
		l, err := campaign(ctx, cfg)
		if err != nil {
			return nil, fmt.Errorf("ps: stand by for job %q: %w", cfg.Job.Name, err)
		}
		c, err := startCoordinator(ctx, cfg, l)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || final(err) {
			return nil, err
		}
		cfg.Logger.Warn("coordinator did not take over, will try again", "job", cfg.Job.Name, "err", err)
		sleep(ctx, cfg.LeaseTTL/10)
	}
}

// final reports whether an attempt to lead would fail again for the same reason.
func final(err error) bool {
	for _, e := range []error{
		ErrConflict, shard.ErrRecord, store.ErrClosed, store.ErrLimit, store.ErrCorrupt, actor.ErrClosed, actor.ErrNameTaken,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// campaign returns when the store has made this process the leader.
func campaign(ctx context.Context, cfg CoordinatorConfig) (*leadership, error) {
	key := newPlacement(nil, cfg.Job.Name, 0).leaderKey()
	text, err := json.Marshal(leader{Node: cfg.Node.Name(), Addr: cfg.Node.Addr()})
	if err != nil {
		return nil, fmt.Errorf("ps: address of the coordinator: %w", err)
	}
	complained := false
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, cfg.LeaseTTL)
		l, err := elect(attempt, cfg, key, text)
		cancel()
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, store.ErrConflict) && ctx.Err() == nil {
			if final(err) {
				return nil, err
			}
			if !complained {
				cfg.Logger.Warn("election: coordination store", "job", cfg.Job.Name, "err", err)
			}
			complained = true
		}
		sleep(ctx, cfg.LeaseTTL/10)
	}
	return nil, ctx.Err()
}

// elect makes one attempt. The error wraps store.ErrConflict when another one leads.
func elect(ctx context.Context, cfg CoordinatorConfig, key string, text []byte) (*leadership, error) {
	e, err := cfg.Store.Get(ctx, key)
	if err == nil {
		return nil, &store.ConflictError{Key: key, Current: e.Revision}
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	asked := since()
	lease, err := cfg.Store.Grant(ctx, cfg.LeaseTTL)
	if err != nil {
		return nil, err
	}
	l := &leadership{kv: cfg.Store, lease: lease, ttl: cfg.LeaseTTL}
	if _, err := cfg.Store.CompareAndSwapLease(ctx, lease, key, 0, text); err != nil {
		l.resign() // also if the key was written after all
		return nil, err
	}
	l.extend(asked)
	return l, nil
}

// extend takes note that the lease began anew after the store was asked for it.
func (l *leadership) extend(asked int64) { l.until.Store(asked + int64(l.ttl-leaseMargin)) }

// keep renews the lease until ctx ends, or the leadership is lost: then it returns why.
func (l *leadership) keep(ctx context.Context) error {
	var last error
	for ctx.Err() == nil {
		if !l.holds() {
			return fmt.Errorf("%w: the lease was not renewed in time: %w", ErrDeposed, errors.Join(last, context.DeadlineExceeded))
		}
		asked := since()
		attempt, cancel := context.WithTimeout(ctx, time.Duration(l.until.Load()-asked))
		err := l.kv.KeepAlive(attempt, l.lease)
		cancel()
		switch {
		case err == nil && l.holds(): // an answer that comes too late is none
			l.extend(asked)
		case errors.Is(err, store.ErrLeaseNotFound):
			l.until.Store(0)
			return fmt.Errorf("%w: %w", ErrDeposed, err)
		case err != nil:
			last = err
		}
		sleep(ctx, min((l.ttl-leaseMargin)/renewals, time.Duration(max(0, l.until.Load()-since()))))
	}
	return ctx.Err()
}

// resign gives the lease back, so that the next one need not wait for its end.
func (l *leadership) resign() {
	l.until.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.kv.Revoke(ctx, l.lease) // it ends by itself as well
}

// lead keeps the leadership as long as the coordinator lasts.
func (c *Coordinator) lead() {
	if c.leadership == nil {
		return
	}
	c.running.Go(func() {
		if err := c.leadership.keep(c.ctx); c.ctx.Err() == nil {
			c.depose(err)
		}
	})
}

// yield ends a coordinator that was not elected when one leads that was: the two must not
// be mixed, and nobody waits for this one's end. A store that does not answer proves nothing.
func (c *Coordinator) yield() {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
		err := c.places.vacant(ctx)
		cancel()
		if errors.Is(err, ErrConflict) {
			c.depose(fmt.Errorf("%w: it was not elected: %w", ErrDeposed, err))
		}
		sleep(c.ctx, auditInterval)
	}
}

// depose ends the coordinator: its actor ends with the next message that it gets.
func (c *Coordinator) depose(cause error) {
	if c.ctx.Err() == nil {
		c.log.Warn("coordinator is deposed", "job", c.cfg.Job.Name, "err", cause) // its term may not be known yet
	}
	c.stop(cause)
}

// leads reports whether the coordinator may act on a message.
func (c *Coordinator) leads() bool {
	if c.ctx.Err() != nil {
		return false
	}
	if !c.leadership.holds() {
		c.depose(fmt.Errorf("%w: its lease is over", ErrDeposed))
		return false
	}
	return true
}

// Done is closed when the coordinator has ended or is about to: by Close, or because it
// was deposed. Err says which.
func (c *Coordinator) Done() <-chan struct{} { return c.ctx.Done() }

// Err returns why Done is closed, nil before: ErrClosed, or an error that wraps
// ErrDeposed.
func (c *Coordinator) Err() error { return context.Cause(c.ctx) }

// Term numbers the coordinators of a job: a later one has a higher term.
func (c *Coordinator) Term() uint64 { return c.term }

// fenced is a store in which only a coordinator that leads writes.
type fenced struct {
	store.KV
	leadership *leadership
}

// CompareAndSwap fails with ErrDeposed when another coordinator may lead.
func (f fenced) CompareAndSwap(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	if !f.leadership.holds() {
		return 0, fmt.Errorf("%w: key %.64q is not written", ErrDeposed, key)
	}
	return f.KV.CompareAndSwap(ctx, key, old, value)
}

func (p *placement) leaderKey() string { return p.prefix + "leader" }

// vacant fails with ErrConflict if a coordinator leads the job.
func (p *placement) vacant(ctx context.Context) error {
	e, err := p.kv.Get(ctx, p.leaderKey())
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var l leader
	if err := json.Unmarshal(e.Value, &l); err != nil {
		return fmt.Errorf("ps: store key %q: %w", e.Key, err)
	}
	return fmt.Errorf("%w: a coordinator leads on node %q at %s; StandBy waits for its end", ErrConflict, l.Node, l.Addr)
}

// takeOver gives everything that is there a new revision: a write of the coordinator
// before that is still on its way finds another one than it expects.
func (p *placement) takeOver(ctx context.Context) error {
	var entries []store.Entry
	for _, kind := range []string{"shard/", "server/", "member/", "dataset/"} {
		some, err := p.kv.List(ctx, p.prefix+kind)
		if err != nil {
			return err
		}
		entries = append(entries, some...)
	}
	errs := make([]error, len(entries))
	atOnce(touches, entries, func(i int, e store.Entry) { errs[i] = p.touch(ctx, e) })
	return errors.Join(errs...)
}

// touch writes an entry again as it is, or as it has become meanwhile.
func (p *placement) touch(ctx context.Context, e store.Entry) error {
	for {
		_, err := p.kv.CompareAndSwap(ctx, e.Key, e.Revision, e.Value)
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if e, err = p.kv.Get(ctx, e.Key); errors.Is(err, store.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
