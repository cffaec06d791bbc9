package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// What the coordinator does when a server does not answer any more: its followers take
// its place, and owners go on without the followers that it had.

const (
	// probeTimeout is how long a server may take to show that it lives after all.
	probeTimeout = 300 * time.Millisecond
	// maxPromotions bounds the shards that are given to a follower at the same time.
	maxPromotions = 32
	keptFailovers = 32
	// repairsAhead times MaxRepairs new followers are begun at once; those over MaxRepairs
	// wait for their turn.
	repairsAhead = 4
	// repairPause is how long a shard rests that could not get a follower.
	repairPause = time.Second
)

// Failover says what was done about a server that failed.
type Failover struct {
	Server shard.ServerID
	// Promoted counts the shards of the server that a follower took over, Lost those that
	// had neither a follower nor a checkpoint.
	Promoted, Lost int
	// Refilled counts the shards that nobody had any more and that were restored from a
	// checkpoint, and LostPushes the pushes that are known to have been applied after it: at
	// least so many are lost. An owner reports every ServerConfig.ReportInterval what it has
	// applied, of up to 512 shards in turn, and the coordinator keeps the last report in memory
	// only: what was applied later is not counted, and nothing of a shard whose owner this
	// coordinator has not heard.
	Refilled   int
	LostPushes uint64
	Started    time.Duration // since the start of the coordinator
	// Took is the time from Started until the last of these shards was served again.
	Took time.Duration
	// Sure means that the server was known to be dead. Otherwise the new owners waited until
	// its leases had ended.
	Sure bool
}

// vitality is what a probe finds out.
type vitality uint8

const (
	silent  vitality = iota // nothing came: it may live, or not
	answers                 // it lives
	ended                   // it is dead for certain
)

// vital asks a server whether it lives. That it is dead is only believed if something
// says so that knows: its node, or the machine where its node was.
func (c *Coordinator) vital(id shard.ServerID, patience time.Duration) vitality {
	at := c.places.where(id)
	if at.Addr == "" {
		return silent
	}
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	_, err := c.cfg.Node.Call(ctx, actor.Ref{Node: at.Node, Name: at.Process}, aliveRequest{})
	switch {
	case err == nil:
		return answers
	case errors.Is(err, actor.ErrNoProcess) && (at.Node != c.cfg.Node.Name() || at.Addr == c.cfg.Node.Addr()):
		return ended // the node lives, and no other has its name; the server's actor ended after its data plane
	}
	if vacant(ctx, at.Addr) {
		return ended
	}
	return silent
}

// vacant reports whether a machine says that nobody listens on an address any more.
func vacant(ctx context.Context, addr string) bool {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		_ = nc.Close() // only the answer mattered
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// dead reports whether a server has ended for certain, with all its runs. Silence alone
// proves nothing.
func (c *Coordinator) dead(id shard.ServerID) bool {
	return !c.isUp(id) && c.vital(id, time.Second) == ended && c.succeeds(id)
}

// suspect has a server replaced that does not answer. The caller holds c.mu.
func (c *Coordinator) suspect(id shard.ServerID) {
	if c.failing[id] || c.ctx.Err() != nil {
		return
	}
	c.failing[id] = true
	held := c.holdings(id)
	c.running.Go(func() {
		v := c.vital(id, probeTimeout)
		if v != answers && !c.isUp(id) {
			doubtful := map[shard.ID]shard.Record{}
			if v == ended && !c.succeeds(id) {
				doubtful = c.notSeen(id, held)
			}
			c.failover(id, v == ended, held)
			c.failover(id, false, doubtful)
		}
		c.mu.Lock()
		delete(c.failing, id)
		c.unsettled = true
		c.mu.Unlock()
	})
}

// holdings are the records of the shards that a server owns or follows. They are taken
// before it is looked at: what is found out then says nothing about what it, or a later
// run of it, is given in the meantime.
func (c *Coordinator) holdings(id shard.ServerID) map[shard.ID]shard.Record {
	held := map[shard.ID]shard.Record{}
	for _, r := range c.places.all() {
		if r.Assignment.Owner == id || r.Followers.Has(id) {
			held[r.Assignment.Shard] = r
		}
	}
	return held
}

// fail replaces a server for the shards that it should have and has not: it is another run
// of it that has come. The earlier one may live all the same, on a host that is cut off. The
// caller holds c.mu.
func (c *Coordinator) fail(id shard.ServerID, shards map[shard.ID]shard.Record) {
	if len(shards) > 0 {
		c.running.Go(func() { c.failover(id, c.succeeds(id), shards) })
	}
}

// failover promotes a follower of each shard that a server owned when it was found gone,
// and takes the server from the followers of the others.
func (c *Coordinator) failover(id shard.ServerID, sure bool, held map[shard.ID]shard.Record) {
	began := time.Now()
	f := Failover{Server: id, Sure: sure, Started: began.Sub(c.started)}
	var mu sync.Mutex
	dead, newest := remembered(c.dead), remembered(c.newest)
	atOnce(maxPromotions, slices.Sorted(maps.Keys(held)), func(_ int, s shard.ID) {
		was := held[s].Assignment
		if was.Owner != id {
			c.dropNow(s, id, nil)
			return
		}
		if c.isUp(id) && !c.lacks(was) {
			return
		}
		promoted := c.promote(was, sure)
		lost, refilled := uint64(0), false
		if !promoted && sure {
			lost, refilled = c.refill(was, dead, newest)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case promoted:
			f.Promoted++
		case refilled:
			f.Refilled++
			f.LostPushes += lost
		default:
			now := c.places.record(s) // a move may have ended, or another server have it
			if isNext := !now.Assignment.SameOwner(was) && c.isUp(now.Assignment.Owner); !isNext && !now.Recoverable() {
				f.Lost++
			}
			return
		}
		f.Took = time.Since(began)
	})
	if f.Promoted+f.Refilled+f.Lost == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	isOfThis := func(other Failover) bool { return other.Server == id && other.Lost == f.Lost }
	if f.Promoted+f.Refilled == 0 && slices.ContainsFunc(c.failovers, isOfThis) {
		return // as before: nothing can be done yet
	}
	c.log.Warn("failover", "server", id, "promoted", f.Promoted, "refilled", f.Refilled, "lost", f.Lost, "lost_pushes", f.LostPushes, "took", f.Took, "sure", sure)
	c.failovers = append(c.failovers, f)
	c.failovers = c.failovers[max(0, len(c.failovers)-keptFailovers):]
}

// atOnce calls f with the place of each thing and the thing, in order, limit of them at the same
// time, and returns when all have been done.
func atOnce[T any](limit int, things []T, f func(i int, thing T)) {
	var tasks sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i, thing := range things {
		slots <- struct{}{}
		tasks.Go(func() {
			defer func() { <-slots }()
			f(i, thing)
		})
	}
	tasks.Wait()
}

// remembered asks f once about each thing: a silent server takes its time, and so does a storage.
func remembered[K comparable, V any](f func(K) V) func(K) V {
	var mu sync.Mutex
	asked := map[K]func() V{}
	return func(k K) V {
		mu.Lock()
		if asked[k] == nil {
			asked[k] = sync.OnceValue(func() V { return f(k) })
		}
		answer := asked[k]
		mu.Unlock()
		return answer()
	}
}

var errSettled = errors.New("ps: nothing to be done")

// promote gives a shard of a server that is gone to a follower, and returns when that
// serves; if that has lost its copy, to the next one. It reports false if there is none.
// Meanwhile no move of the shard begins: it would find that its source does not own it yet.
func (c *Coordinator) promote(was shard.Assignment, sure bool) bool {
	id := was.Shard
	c.promotes(id, 1)
	defer c.promotes(id, -1)
	for c.ctx.Err() == nil {
		var before, after shard.Record
		var to shard.ServerID
		ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
		err := c.places.change(ctx, id, func(cur shard.Record) (next shard.Record, err error) {
			before = cur
			if !cur.Assignment.SameOwner(was) {
				return cur, errSettled
			}
			if to = c.firstUp(id, cur.Followers); to == "" {
				return cur, errSettled
			}
			after, err = cur.Promote(to)
			return after, err
		})
		cancel()
		switch {
		case err == nil:
			c.clean(before)
			if err = c.appoint(id, sure); !errors.Is(err, shard.ErrRefused) {
				return err == nil
			}
			was, sure = after.Assignment, sure && c.succeeds(to) // an earlier run of it may have begun to serve
			continue
		case errors.Is(err, errSettled):
			return !before.Assignment.SameOwner(was)
		case errors.Is(err, shard.ErrRecord):
			c.log.Error("follower cannot be promoted", "shard", id, "follower", to, "err", err)
			return false
		}
		c.reread(id, err)
	}
	return false
}

// promotes counts a promotion of a shard that begins, or with -1 ends.
func (c *Coordinator) promotes(id shard.ID, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettled = true
	if c.promoting[id] += change; c.promoting[id] == 0 {
		delete(c.promoting, id)
		c.beginQueued(id, true)
	}
}

// firstUp returns the first follower of a shard that is up, one that is not known to have
// lost its copy if there is one.
func (c *Coordinator) firstUp(id shard.ID, f shard.Followers) (first shard.ServerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, follower := range f.IDs() {
		switch {
		case !c.up(follower):
		case !c.servers[follower].lost[id]:
			return follower
		case first == "":
			first = follower
		}
	}
	return first
}

// reread reads a record again after a write whose outcome is not known, or that has met
// another coordinator's.
func (c *Coordinator) reread(id shard.ID, cause error) {
	if !errors.Is(cause, store.ErrConflict) {
		c.log.Warn("coordination store", "shard", id, "err", cause)
		sleep(c.ctx, retryPause)
	}
	ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
	defer cancel()
	if _, err := c.places.read(ctx, id); err != nil {
		sleep(c.ctx, retryPause) // a store that is down is asked again and again
	}
}

// appoint has the owner of the record serve. It returns when that does, or cannot: the
// error wraps shard.ErrRefused if the owner has no copy that could serve.
func (c *Coordinator) appoint(id shard.ID, sure bool) error {
	sure = c.nobodyReads(id, sure)
	for c.ctx.Err() == nil {
		r := c.places.record(id)
		a := r.Assignment
		if r.Pending != nil || !c.isUp(a.Owner) {
			return errSettled // somebody else's, or the next failover's
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.StepTimeout)
		e := shard.Effect{Kind: shard.EffectActivate, Shard: id, Server: a.Owner, Epoch: a.Epoch, Attempt: a.Attempt}
		_, err := c.command(ctx, e, c.cfg.StepTimeout, sure)
		cancel()
		switch {
		case err == nil:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.waits(id, leaseWait)
			return nil
		case errors.Is(err, shard.ErrRefused):
			c.log.Error("promoted follower refuses", "shard", id, "server", a.Owner, "err", err)
			c.loses(a.Owner, id)
			return err
		}
		sleep(c.ctx, retryPause)
	}
	return c.ctx.Err()
}

// clean has the parties of a move that a promotion has ended drop what they have, and the
// former owner, which may have registered while it was being replaced.
func (c *Coordinator) clean(before shard.Record) {
	id := before.Assignment.Shard
	c.free(id, before.Assignment.Owner)
	if p := before.Pending; p != nil {
		c.free(id, p.From)
		c.free(id, p.To)
	}
}

// free has a server that neither owns nor follows a shard drop what it has of it, beside
// the caller, as far as it can be asked; if it cannot, it will be when it reports what it has.
func (c *Coordinator) free(id shard.ID, server shard.ServerID) {
	r := c.places.record(id)
	a := r.Assignment
	if server == a.Owner || r.Followers.Has(server) || !c.isUp(server) {
		return
	}
	e := shard.Effect{Shard: id, Server: server, Peer: a.Owner, Epoch: a.Epoch, Attempt: a.Attempt}
	c.running.Go(func() {
		for _, e.Kind = range []shard.EffectKind{shard.EffectDiscard, shard.EffectDepose} {
			if c.insist(e) == nil {
				return
			}
		}
	})
}

// insist has a server carry out an effect that nobody waits for. It asks until there is an
// answer, the server is down, so that it will tell what it has, or another attempt has begun.
func (c *Coordinator) insist(e shard.Effect) error {
	for {
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.StepTimeout)
		_, err := c.command(ctx, e, c.cfg.StepTimeout, false)
		cancel()
		if err == nil || !askAgain(err) || !c.isUp(e.Server) || c.ctx.Err() != nil {
			return err
		}
		sleep(c.ctx, retryPause)
	}
}

// drop takes a follower that an owner has lost from the set, beside the caller, who holds
// c.mu. Until then the owner acknowledges nothing. Of another owner it says nothing: a follower
// that goes on with the next one is lost to the one before.
func (c *Coordinator) drop(of shard.Assignment, follower shard.ServerID) {
	id := of.Shard
	if c.telling[id] || c.ctx.Err() != nil {
		return
	}
	c.telling[id] = true
	c.running.Go(func() {
		c.dropNow(id, follower, &of)
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.telling, id)
		c.unsettled = true
	})
}

// dropNow takes a server from the followers of a shard, and returns when the owner knows, or
// another one has taken it and is about to tell.
// It does not if the owner does not say that it has the shard: the follower may be the
// last one that does. With an assignment, only followers of that owner are taken.
func (c *Coordinator) dropNow(id shard.ID, follower shard.ServerID, of *shard.Assignment) {
	for c.ctx.Err() == nil {
		was := c.places.record(id)
		owner := was.Assignment.Owner
		if of != nil && !was.Assignment.SameOwner(*of) {
			return
		}
		run := c.places.counts(owner)
		if was.Followers.Has(follower) && (run == 0 || c.owns(was.Assignment) != nil) {
			return // it will say so when it can, or be replaced
		}
		isGone := false // the failover of the follower and the report of the owner may find it lost at the same time
		ctx, cancel := context.WithTimeout(c.ctx, storeTimeout)
		err := c.places.change(ctx, id, func(cur shard.Record) (shard.Record, error) {
			isGone = was.Followers.Has(follower) && !cur.Followers.Has(follower)
			isNew := cur.Followers.Has(follower) && !was.Followers.Has(follower)    // the owner was not asked
			isOther := was.Followers.Has(follower) && c.places.counts(owner) != run // and the owner that has answered does not count
			if !cur.Assignment.SameOwner(was.Assignment) || isNew || isOther {
				return cur, errSettled
			}
			return cur.Drop(follower), nil
		})
		cancel()
		switch {
		case errors.Is(err, errSettled):
			continue
		case err == nil && isGone:
			return // whoever has dropped it tells the owner
		case err == nil:
			if was.Followers.Has(follower) {
				c.log.Info("follower is dropped", "shard", id, "follower", follower)
			}
			c.tell(id)
			c.free(id, follower)
			return
		}
		c.reread(id, err)
	}
}

// owns returns nil if the owner of a shard says that it has it, and an error that wraps
// shard.ErrRefused if it says that it has not.
func (c *Coordinator) owns(a shard.Assignment) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.StepTimeout)
	defer cancel()
	_, err := c.order(ctx, a.Owner, command{Kind: commandOwns, Shard: uint32(a.Shard), Epoch: uint64(a.Epoch), Attempt: a.Attempt, Timeout: c.cfg.StepTimeout})
	return err
}

// lacks reports whether the owner of a shard says that it does not have it. One that has it has
// not lost it.
func (c *Coordinator) lacks(a shard.Assignment) bool {
	err := c.owns(a)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s := c.servers[a.Owner]; s != nil {
			delete(s.lost, a.Shard)
		}
	}
	return errors.Is(err, shard.ErrRefused)
}

// tell tells the owner of a shard which followers count.
func (c *Coordinator) tell(id shard.ID) {
	r := c.places.record(id)
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.StepTimeout)
	defer cancel()
	if _, err := c.command(ctx, r.Settle(), c.cfg.StepTimeout, false); err != nil && c.ctx.Err() == nil {
		// An owner that waits reports again.
		c.log.Info("owner was not told about its followers", "shard", id, "server", r.Assignment.Owner, "err", err)
	}
}

// repair makes followers where some are missing, and replaces those on servers that are
// to be emptied. The caller holds c.mu.
func (c *Coordinator) repair() {
	if !c.unsettled || c.ctx.Err() != nil {
		return
	}
	c.unsettled = false
	records := c.places.all()
	for _, r := range records {
		if owner := r.Assignment.Owner; owner != "" && !c.up(owner) && (r.Followers.Len() > 0 || c.cfg.Checkpoints.Storage != nil) {
			c.suspect(owner) // a follower may be up by now, or a server to be filled
			c.unsettled = true
		}
	}
	if c.awaits(records) {
		c.unsettled = true
		return
	}
	under := 0
	for _, w := range c.moving {
		if w.nonce == "" {
			under++
		}
	}
	plan := shard.PlanFollowers(records, c.shards, c.eligible(), c.cfg.Job.Replicas, c.unfit)
	for _, m := range plan.Drop {
		c.drop(records[m.Shard].Assignment, m.To)
	}
	for _, m := range plan.Add {
		owner := c.servers[records[m.Shard].Assignment.Owner]
		if owner != nil && owner.lost[m.Shard] || c.moving[m.Shard] != nil || c.promoting[m.Shard] > 0 || time.Now().Before(c.rests[m.Shard]) || under >= repairsAhead*c.cfg.MaxRepairs {
			c.unsettled = true
			continue
		}
		mig, effects, err := shard.Replicate(c.places.record(m.Shard), m.To)
		if err != nil {
			c.log.Error("shard cannot get a follower", "shard", m.Shard, "err", err)
			continue
		}
		c.run(&underWay{}, mig, effects)
		under++
	}
}

// up is isUp for a caller who holds c.mu.
func (c *Coordinator) up(id shard.ServerID) bool { s := c.servers[id]; return s != nil && s.up }

// String sums the failover up in a line.
func (f Failover) String() string {
	return fmt.Sprintf("server %q: %d shards promoted and %d refilled in %v, %d lost", f.Server, f.Promoted, f.Refilled, f.Took.Round(time.Millisecond), f.Lost)
}
