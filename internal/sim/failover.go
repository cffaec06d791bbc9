package sim

import "github.com/elasticps/elasticps/shard"

// tick does what should have been done by now.
func (c *coordinator) tick() {
	c.after(beatEvery, c.tick)
	for i := range c.views {
		c.probe(c.w.servers[i])
	}
	for i := range c.known {
		k := &c.known[i]
		if c.clock()-k.since > readEvery {
			k.since = c.clock() // asked for, whether it comes or not
			c.read(i, func() {})
		}
		c.reconcile(i)
	}
}

// probe asks the host of a silent server whether a process runs there. It answers also
// for one that hangs, which says then that nothing is proven.
func (c *coordinator) probe(s *server) {
	v, now := c.view(s.id), c.clock()
	if !c.suspects(s.id) || now-v.probed < stepTimeout {
		return
	}
	v.probed = now
	if c.cut(s.process) || s.process.cut(c.process) {
		return
	}
	c.w.after(c.w.delay(), func() {
		none := !s.up
		c.w.after(c.w.delay(), func() {
			c.wake(c.run, func() {
				if none {
					v.deadAt = max(v.deadAt, now)
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
	isGone := k.goneAt >= k.learned && k.goneAt > 0
	isDead := c.isDead(i, owner)
	if c.w.mutants.RefillOnSilence || c.w.mutants.ReportIsProof {
		isDead = isDead || (c.w.mutants.RefillOnSilence && c.suspects(owner))
		isGone = isGone || (c.w.mutants.ReportIsProof && k.goneAt > 0)
	}
	isDown := isGone || isDead || c.suspects(owner)
	switch {
	case k.busy:
	case isDown && r.Followers.Len() > 0:
		c.promote(i, isDead)
	case r.Pending != nil || c.moves[i] != nil:
	case r.Followers.Len() == 0 && (isGone && c.clock()-k.goneAt > leaseWait || isDead && c.clock()-c.view(owner).deadAt > leaseWait):
		c.refill(i) // a lease that the owner gave when it was a follower has ended
	case !isDown && r.Followers.Len() < c.w.profile.followers && c.serves(owner, i):
		c.replicate(i)
	}
	for _, id := range r.Followers.IDs() {
		if (c.suspects(id) && c.mayDrop(i)) || c.isDead(i, id) {
			c.drop(i, id)
		}
	}
}

// isDead says whether it is proven that a server has no process, and so nothing of the
// shard, as long as the record is the one that is known.
func (c *coordinator) isDead(i int, id shard.ServerID) bool {
	at := c.view(id).deadAt
	return at > 0 && at >= c.known[i].learned
}

// ask asks a follower that seems to have no copy, and drops it if that is so.
func (c *coordinator) ask(i int, id shard.ServerID) {
	s, revision := c.w.server(id), c.known[i].revision
	c.call(s, resendEvery, func(answer func(bool, shard.Copy)) { answer(true, s.replicas[i].copy) },
		func(ok, _ bool, now shard.Copy) {
			hasNone := now.State == shard.Absent || now.State == shard.Receiving || now.State == shard.Released
			if ok && hasNone && c.known[i].revision == revision {
				c.drop(i, id)
			}
		})
}

// serves says whether a server has reported that it owns a shard as the record says.
func (c *coordinator) serves(id shard.ServerID, i int) bool {
	held := c.view(id).copies
	return held != nil && owns(held[i]) && held[i].Epoch == c.known[i].record.Assignment.Epoch
}

// mayDrop says whether a follower may be taken out of the record: only while the owner is
// there and has the shard. Else a follower that is merely slow may be the last that does.
func (c *coordinator) mayDrop(i int) bool {
	owner := c.known[i].record.Assignment.Owner
	return c.serves(owner, i) && !c.suspects(owner) || c.w.mutants.DropOrphans
}

// promote makes a follower the owner that is known to have a copy.
func (c *coordinator) promote(i int, isDead bool) {
	r := c.known[i].record
	for _, id := range r.Followers.IDs() {
		v := c.view(id)
		if c.suspects(id) || v.copies == nil || v.copies[i].State != shard.CaughtUp && v.copies[i].State != shard.Frozen {
			continue
		}
		next, err := r.Promote(id)
		if err != nil {
			c.w.fail("promote: %w", err)
			return
		}
		if c.w.mutants.PromoteInPlace {
			next.Assignment.Attempt--
		}
		c.beside(i, next, func() {
			c.w.count("promotion")
			c.known[i].isProof = isDead
			c.feed(i, shard.Event{Kind: shard.EventSuperseded})
			c.activate(i)
		})
		return
	}
}

// refill gives up a shard that nobody has any more, and begins anew. How a new owner is
// filled is no part of the protocol: here it is in the same instant as the record.
func (c *coordinator) refill(i int) {
	r := c.known[i].record
	first := c.w.rng.IntN(len(c.w.servers))
	for n := range c.w.servers {
		s := c.w.servers[(first+n)%len(c.w.servers)]
		if c.suspects(s.id) || !s.up {
			continue
		}
		a := r.Assignment
		a.Owner, a.Epoch, a.Attempt = s.id, a.Epoch+1, a.Attempt+1
		c.beside(i, shard.Record{Assignment: a, Set: r.Set}, func() {})
		return
	}
}

// replicate makes another server a follower.
func (c *coordinator) replicate(i int) {
	r := c.known[i].record
	first := c.w.rng.IntN(len(c.w.servers))
	for n := range c.w.servers {
		s := c.w.servers[(first+n)%len(c.w.servers)]
		if s.id == r.Assignment.Owner || r.Followers.Has(s.id) || c.suspects(s.id) || c.view(s.id).run == 0 {
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
			if now.State == shard.Absent || now.State == shard.Receiving || now.State == shard.Released {
				c.known[i].goneAt = sent
			}
			c.read(i, func() {})
		})
	}
}

// drop takes a follower out of the record, and tells the owner.
func (c *coordinator) drop(i int, follower shard.ServerID) {
	r := c.known[i].record
	if c.w.mutants.KeepBeforeDrop {
		c.keep(i, r.Drop(follower))
	}
	c.beside(i, r.Drop(follower), func() {
		c.w.count("drop")
		c.keep(i, c.known[i].record)
	})
}

// keep tells the owner which followers count.
func (c *coordinator) keep(i int, r shard.Record) {
	e := shard.Effect{
		Kind: shard.EffectSettle, Shard: r.Assignment.Shard, Server: r.Assignment.Owner, Epoch: r.Assignment.Epoch,
		Attempt: r.Assignment.Attempt, Followers: r.Followers, Set: r.Set,
	}
	if r.Pending != nil {
		e.Kind = shard.EffectKeep
	}
	c.order(e, false, stepTimeout, func(ok, answered bool, _ shard.Copy) {
		if answered && !ok {
			c.read(i, func() {})
		}
	})
}

// lost is an owner's report about a follower to which it has no stream.
func (c *coordinator) lost(i int, owner, follower shard.ServerID, epoch shard.Epoch) {
	r := c.known[i].record
	switch {
	case r.Assignment.Owner != owner || r.Assignment.Epoch != epoch:
	case r.Followers.Has(follower) && !c.mayDrop(i): // old news
	case r.Followers.Has(follower):
		c.drop(i, follower)
	case r.Pending == nil && c.moves[i] == nil:
		c.keep(i, r)
	}
}

// reported takes what a server says about itself and its copies.
func (c *coordinator) reported(id shard.ServerID, run int, copies []shard.Copy) {
	v := c.view(id)
	if run < v.run {
		return
	}
	v.run, v.heard, v.copies = run, c.clock(), copies
	for i, held := range copies {
		c.judge(i, id, held)
	}
}

// judge compares a copy with the record and has done what is missing.
func (c *coordinator) judge(i int, id shard.ServerID, held shard.Copy) {
	k := &c.known[i]
	r := k.record
	a, p := r.Assignment, r.Pending
	isParty := p != nil && (p.From == id || p.To == id)
	e := shard.Effect{Shard: a.Shard, Server: id, Epoch: a.Epoch, Attempt: a.Attempt, Peer: a.Owner}
	switch {
	case held.Attempt > a.Attempt:
		c.look(i)
		return
	case a.Owner == id:
		if c.w.mutants.ReportIsProof && held.State == shard.Absent {
			k.goneAt = c.clock()
		}
		if p == nil && (!owns(held) || held.Epoch < a.Epoch) {
			c.activate(i)
		}
		return
	case isParty:
		return
	case r.Followers.Has(id):
		if held.State == shard.Absent || held.State == shard.Receiving || held.State == shard.Released {
			c.ask(i, id)
		}
		return
	case owns(held):
		e.Kind = shard.EffectDepose
	case held.State == shard.Receiving || held.State == shard.CaughtUp:
		e.Kind = shard.EffectDiscard
	default:
		return
	}
	c.order(e, false, resendEvery, func(ok, answered bool, _ shard.Copy) {
		if answered && !ok {
			c.look(i)
		}
	})
}

// look reads a record that seems to have changed, now and then.
func (c *coordinator) look(i int) {
	k := &c.known[i]
	if c.clock()-k.since > resendEvery {
		k.since = c.clock()
		c.read(i, func() {})
	}
}
