package sim

import (
	"time"

	"github.com/elasticps/elasticps/shard"
)

// tick does what should have been done by now.
func (c *coordinator) tick() {
	c.after(beatEvery, c.tick)
	for i := range c.views {
		c.probe(&c.views[i])
	}
	for i := range c.known {
		k := &c.known[i]
		if c.clock()-k.since > readEvery {
			k.since = c.clock() // asked for, whether it comes or not
			c.read(i, func(bool) {})
		}
		c.reconcile(i)
	}
	c.retain()
}

// retain tells the servers which incarnations of workers exist.
func (c *coordinator) retain() {
	w := c.w
	if w.rng.IntN(4) != 0 {
		return
	}
	horizon, live := w.incarnations, make([]uint64, 0, len(w.workers))
	for _, k := range w.workers {
		live = append(live, k.incarnation)
	}
	if w.mutants.RetainMissesOne {
		live = live[1:]
	}
	for _, v := range c.views {
		s := v.at
		if s == nil {
			continue
		}
		w.send(c.process, s.process, func() {
			for _, r := range s.replicas {
				r.retain(horizon, live)
			}
		})
	}
}

// probe asks the host of a silent server whether a process runs there. It answers also
// for one that hangs, which says then that nothing is proven.
func (c *coordinator) probe(v *view) {
	now := c.clock()
	if now-v.probed < stepTimeout {
		return
	}
	for _, f := range v.before {
		v.probed = now
		c.knock(f, func() { v.forget(f) })
	}
	if v.at == nil || now-v.heard <= suspectAfter {
		return
	}
	v.probed = now
	is := former{v.at, v.number}
	c.knock(is, func() {
		if v.number == is.number {
			v.deadAt = max(v.deadAt, now)
		}
	})
}

// knock finds out that a run of a server is over, if it is.
func (c *coordinator) knock(f former, over func()) {
	if c.cut(f.at.process) || f.at.process.cut(c.process) {
		return
	}
	c.w.after(c.w.delay(), func() {
		none := f.over()
		c.w.after(c.w.delay(), func() {
			c.wake(c.run, func() {
				if none {
					over()
				}
			})
		})
	})
}

// reconcile looks after one shard.
func (c *coordinator) reconcile(i int) {
	k := &c.known[i]
	r := k.record
	if c.moves[i] == nil && r.Pending != nil {
		m, effects, err := shard.Resume(r)
		c.begin(i, m, effects, err)
	}
	owner := r.Assignment.Owner
	isGone, isDead := k.isGone(), c.isDead(i, owner)
	if c.w.mutants.RefillOnSilence || c.w.mutants.ReportIsProof {
		isDead = isDead || (c.w.mutants.RefillOnSilence && c.suspects(owner))
		isGone = isGone || (c.w.mutants.ReportIsProof && k.goneAt > 0)
	}
	isDown := isGone || isDead || c.suspects(owner)
	isGone = isGone && !c.mayLive(owner)
	switch {
	case k.busy:
	case isDown && r.Followers.Len() > 0:
		c.promote(i, isDead || isGone)
	case r.Pending != nil || c.moves[i] != nil:
	case r.Followers.Len() == 0 && (isGone && c.clock()-k.goneAt > leaseWait || isDead && c.clock()-c.view(owner).deadAt > leaseWait):
		c.refill(i) // a lease that the owner gave when it was a follower has ended
	case !isDown && r.Followers.Len() < c.w.profile.followers:
		c.replicate(i)
	}
	for _, id := range r.Followers.IDs() {
		if c.suspects(id) || c.isDead(i, id) {
			c.drop(i, id, c.isDead(i, id))
		}
	}
}

// isDead says whether it is proven that a server has no process, and so nothing of the
// shard, as long as the record is the one that is known.
func (c *coordinator) isDead(i int, id shard.ServerID) bool {
	at := c.view(id).deadAt
	return at > 0 && at >= c.known[i].learned && !c.mayLive(id)
}

// mayLive says whether an earlier run of a server may live, and have what the run that
// counts has not.
func (c *coordinator) mayLive(id shard.ServerID) bool {
	return len(c.view(id).before) > 0 && !c.w.mutants.LaterRunIsProof
}

// ask asks a follower that seems to have no copy, and drops it if that is so.
func (c *coordinator) ask(i int, id shard.ServerID) {
	s, revision := c.view(id).at, c.known[i].revision
	c.call(s, resendEvery, func(answer func(bool, shard.Copy)) { answer(true, s.replicas[i].copy) },
		func(ok, _ bool, now shard.Copy) {
			if ok && hasNone(now) && c.known[i].revision == revision {
				c.drop(i, id, true)
			}
		})
}

// promote makes a follower the owner that is known to have a copy. Sure says that the
// owner before is dead.
func (c *coordinator) promote(i int, sure bool) {
	was := c.known[i].record.Assignment
	if c.heir(i) == "" {
		return
	}
	promoted := func(cur shard.Record) (shard.Record, time.Duration, bool) {
		heir := c.heir(i)
		next, err := cur.Promote(heir)
		if err != nil {
			return cur, 0, false // there is none any more
		}
		if c.w.mutants.PromoteInPlace {
			next.Assignment.Attempt--
		}
		return next, c.view(heir).sent, true
	}
	c.beside(i, was, promoted, func() {
		c.w.count("promotion")
		c.known[i].isProof = sure
		c.activate(i)
		c.w.hasten(c, i)
	})
}

// heir is the first follower that is up and has said that it has a copy, "" for none.
func (c *coordinator) heir(i int) shard.ServerID {
	for _, id := range c.known[i].record.Followers.IDs() {
		v := c.view(id)
		if c.suspects(id) || v.copies == nil {
			continue
		}
		if held := v.copies[i].State; held == shard.CaughtUp || held == shard.Frozen || c.w.mutants.PromoteAbsent {
			return id
		}
	}
	return ""
}

// refill gives up a shard that nobody has any more, and has another server begin anew.
func (c *coordinator) refill(i int) {
	r := c.known[i].record
	first := c.w.rng.IntN(len(c.w.servers))
	for n := range c.w.servers {
		s := c.w.servers[(first+n)%len(c.w.servers)]
		v := c.view(s.id)
		if c.suspects(s.id) || !s.up || v.at != s || v.isOpen || !s.counts() {
			continue
		}
		number := v.number
		begun := func(cur shard.Record) (shard.Record, time.Duration, bool) {
			next, err := cur.Refill(s.id)
			return next, 0, err == nil // else it may have followers by now
		}
		c.beside(i, r.Assignment, begun, func() {
			a := c.known[i].record.Assignment
			fill := func(answer func(bool, shard.Copy)) {
				if s.number == number { // orders name a run
					s.replicas[i].host(a, answer)
				}
			}
			c.call(s, stepTimeout, fill, func(bool, bool, shard.Copy) {})
		})
		return
	}
}

// replicate makes another server a follower.
func (c *coordinator) replicate(i int) {
	r := c.known[i].record
	first := c.w.rng.IntN(len(c.w.servers))
	for n := range c.w.servers {
		s := c.w.servers[(first+n)%len(c.w.servers)]
		if s.id == r.Assignment.Owner || r.Followers.Has(s.id) || c.suspects(s.id) || c.view(s.id).copies == nil {
			continue
		}
		m, effects, err := shard.Replicate(r, s.id)
		c.begin(i, m, effects, err)
		return
	}
}

// activate tells the owner of the record to serve.
func (c *coordinator) activate(i int) {
	k := &c.known[i]
	sent := c.clock()
	if r := k.record; r.Pending == nil && (k.told == 0 || sent-k.told > stepTimeout) {
		k.told = sent
		revision := k.revision
		e := shard.Effect{
			Kind: shard.EffectActivate, Shard: r.Assignment.Shard, Server: r.Assignment.Owner, Epoch: r.Assignment.Epoch,
			Attempt: r.Assignment.Attempt, Followers: r.Followers, Set: r.Set,
		}
		c.order(e, k.isProof, stepTimeout, func(ok, answered bool, now shard.Copy) {
			if !answered || ok || c.known[i].revision != revision {
				return
			}
			c.known[i].noteGone(sent, true, now)
			c.read(i, func(bool) {})
		})
	}
}

// drop takes a follower out of the record, and tells the owner. The owner has to say first
// that it has the shard: else the follower may be the last that does, unless it is sure
// that both have nothing.
func (c *coordinator) drop(i int, follower shard.ServerID, sure bool) {
	k := &c.known[i]
	was := k.record
	if k.busy {
		return
	}
	if c.w.mutants.KeepBeforeDrop {
		c.keep(i, was.Drop(follower))
	}
	seen := c.w.now
	dropped := func(cur shard.Record) (shard.Record, time.Duration, bool) {
		isAsked := was.Followers.Has(follower) || !cur.Followers.Has(follower) || c.w.mutants.DropUnasked
		return cur.Drop(follower), seen, isAsked
	}
	write := func() {
		c.beside(i, was.Assignment, dropped, func() {
			c.w.count("drop")
			c.keep(i, c.known[i].record)
		})
	}
	sure = sure && (k.isGone() && !c.mayLive(was.Assignment.Owner) || c.isDead(i, was.Assignment.Owner))
	if sure || !was.Followers.Has(follower) || c.w.mutants.DropOrphans {
		write()
		return
	}
	k.busy = true
	owner := c.view(was.Assignment.Owner).at
	has := func(answer func(bool, shard.Copy)) {
		now := owner.replicas[i].copy
		ok := now.Owns() && now.Epoch == was.Assignment.Epoch
		if ok {
			seen = c.w.now
		}
		answer(ok, now)
	}
	v := c.view(was.Assignment.Owner)
	number := v.number
	c.call(owner, stepTimeout, has, func(ok, _ bool, _ shard.Copy) {
		c.known[i].busy = false
		if ok && (v.number == number && !v.isOpen || c.w.mutants.LaterRunIsProof) {
			write()
		}
	})
}

// keep tells the owner which followers count.
func (c *coordinator) keep(i int, r shard.Record) {
	c.order(r.Settle(), false, stepTimeout, func(ok, answered bool, _ shard.Copy) {
		if answered && !ok {
			c.read(i, func(bool) {})
		}
	})
}

// lost is an owner's report about a follower to which it has no stream. If the record does
// not have that any more, the owner has not heard of it.
func (c *coordinator) lost(i int, owner, follower shard.ServerID, epoch shard.Epoch) {
	if a := c.known[i].record.Assignment; a.Owner == owner && a.Epoch == epoch {
		c.drop(i, follower, false)
	}
}

// reported takes what a server says about itself and its copies.
func (c *coordinator) reported(s *server, number uint64, sent time.Duration, copies []shard.Copy) {
	v := c.view(s.id)
	if !c.admits(s, number) {
		return
	}
	v.at, v.number, v.heard, v.sent, v.copies = s, number, c.clock(), sent, copies
	for i, held := range copies {
		c.judge(i, s.id, held)
	}
}

// judge compares a copy with the record and has done what is missing.
func (c *coordinator) judge(i int, id shard.ServerID, held shard.Copy) {
	k := &c.known[i]
	r := k.record
	if c.w.mutants.ReportIsProof && r.Assignment.Owner == id && held.State == shard.Absent {
		k.goneAt = c.clock()
	}
	e, isWrong := r.Correct(id, held)
	switch {
	case held.Attempt > r.Assignment.Attempt:
		c.look(i)
	case r.Followers.Has(id) && hasNone(held):
		c.ask(i, id)
	case r.Assignment.Owner == id && r.Pending == nil && (isWrong || hasNone(held)):
		c.activate(i)
	case isWrong:
		c.order(e, false, resendEvery, func(ok, answered bool, _ shard.Copy) {
			if answered && !ok {
				c.look(i)
			}
		})
	}
}

// look reads a record that seems to have changed, now and then.
func (c *coordinator) look(i int) {
	k := &c.known[i]
	if c.clock()-k.since > resendEvery {
		k.since = c.clock()
		c.read(i, func(bool) {})
	}
}
