package ps_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Coordinators that die or hang while another stands by.

// ends are the ways in which a leader ends.
var ends = map[string]bool{"killed": false, "hung": true}

// TestT16LeaderEndsAtEachStep: whoever takes over finishes or undoes the move, and a
// leader that goes on after all at the step where it stood does no harm. The shard that
// does not move is never without service.
func TestT16LeaderEndsAtEachStep(t *testing.T) {
	together(t)
	for i, at := range forward {
		for name, hang := range ends {
			t.Run(at.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				l := newLeague(t, stuckJob())
				first, second := l.both(at, hang)
				l.server("s1")
				l.placed()
				l.server("s2")
				moved := l.traffic("a", stuckElems, l.worker("w1"), l.worker("w2"))
				other := l.traffic("b", 10, l.worker("w3"))
				moved.goesOn()
				l.interruptedMove(first, hang)
				m := starved.Watch(t)
				other.goesOn()
				m.Less(m.Took(), leagueTTL-300*time.Millisecond) // pushes wait for no election
				l.takesOver(second, m)
				if hang {
					first.signal(syscall.SIGCONT)
					first.expect("deposed")
				}
				moved.goesOn()
				want := shard.ServerID("s1")
				if i >= 5 { // committed
					want = "s2"
				}
				l.resumed(i > 0, want, "s1", "s2")
				l.server("s3")
				require.Equal(t, shard.Moved, l.try("s3").Outcome)
				moved.goesOn()
				other.goesOn()
				moved.exact()
				other.exact()
				l.oneOwner()
			})
		}
	}
}

// interruptedMove begins a move of shard 0 to s2 and returns when the leader stands at
// its step, or has been killed there.
func (l *league) interruptedMove(leader *process, hang bool) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(l.ctx)
	answered := make(chan struct{})
	go func() {
		_, _ = l.admin.Move(ctx, 0, "s2") // who was asked does not answer
		close(answered)
	}()
	l.halted(leader, hang)
	cancel()
	<-answered
}

// halted returns when a leader stands at its step, or has been killed there.
func (l *league) halted(leader *process, hang bool) {
	l.t.Helper()
	leader.expect("halt")
	if hang {
		leader.awaitStopped()
	} else {
		leader.kill()
	}
}

// replicating is the way of a new follower.
var replicating = []shard.EffectKind{
	shard.EffectPersistPending, shard.EffectPrepare, shard.EffectFollow, shard.EffectCommit, shard.EffectSettle, shard.EffectClearPending,
}

// TestLeaderEndsWhileAShardGetsAFollower: the shard has one in the end, which may take
// the place of its owner.
func TestLeaderEndsWhileAShardGetsAFollower(t *testing.T) {
	together(t)
	for _, at := range replicating {
		for name, hang := range ends {
			t.Run(at.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				job := stuckJob()
				job.Replicas = 1
				l := newLeague(t, job)
				first, second := l.both(at, hang)
				owner := l.process("server", "s1")
				l.placed()
				a := l.traffic("a", stuckElems, l.worker("w1"), l.worker("w2"))
				b := l.traffic("b", 10, l.worker("w3"))
				a.goesOn()
				l.server("s2")
				l.halted(first, hang)
				m := starved.Watch(t)
				a.goesOn()
				b.goesOn()
				m.Less(m.Took(), leagueTTL-300*time.Millisecond) // pushes wait for no election
				l.takesOver(second, m)
				if hang {
					first.signal(syscall.SIGCONT)
					first.expect("deposed")
				}
				l.returned("s1", "s2")
				l.protected()
				owner.kill()
				a.goesOn()
				b.goesOn()
				a.exact()
				b.exact()
				l.oneOwner()
			})
		}
	}
}

// TestLeaderAndServerEndTogether: the next coordinator does or finishes the failover.
func TestLeaderAndServerEndTogether(t *testing.T) {
	together(t)
	for _, when := range []string{"leader first", "server first", "before a promotion is written", "after a promotion is written"} {
		for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hung": syscall.SIGSTOP} {
			t.Run(when+"/"+name, func(t *testing.T) {
				t.Parallel()
				testEndTogether(t, when, signal)
			})
		}
	}
}

func testEndTogether(t *testing.T, when string, signal syscall.Signal) {
	const layers = 4
	l := newLeague(t, layersJob(1, layers, 1000))
	first, second := l.both(0, false)
	servers := map[shard.ServerID]*process{}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		servers[id] = l.process("server", string(id))
	}
	l.placed()
	l.spread("s1", "s2", "s3")
	l.protected()
	var all []*traffic
	for i := range layers {
		all = append(all, l.traffic(fmt.Sprintf("l%d", i), 1000, l.worker(fmt.Sprintf("w%d", i))))
	}
	for _, tr := range all {
		tr.goesOn()
	}
	end := func(p *process) {
		if signal == syscall.SIGKILL {
			p.kill()
		} else {
			p.signal(signal)
		}
	}
	victim := servers["s1"] // owns l0 and l3
	switch when {
	case "leader first":
		end(first)
		end(victim)
	case "server first":
		end(victim)
		end(first)
	default:
		written := strings.HasPrefix(when, "after")
		ended := make(chan struct{})
		l.store.interrupt(written, func() { end(first); close(ended) })
		end(victim)
		select {
		case <-ended:
		case <-l.ctx.Done():
			require.FailNow(t, "no failover")
		}
	}
	l.takesOver(second, starved.Watch(t))
	for _, tr := range all {
		tr.goesOn()
	}
	if signal == syscall.SIGSTOP {
		first.signal(syscall.SIGCONT)
		victim.signal(syscall.SIGCONT)
		first.expect("deposed")
		l.returned("s1")
	}
	l.returned("s2", "s3")
	l.protected()
	for _, tr := range all {
		tr.goesOn()
		tr.exact()
	}
	l.oneOwner()
}

// interrupt calls f, once, in place of the answer to the next write of a shard's
// record, which takes place or not.
func (s *storeServer) interrupt(written bool, f func()) {
	hook := func(key string) (bool, func()) {
		if !strings.Contains(key, "/shard/") {
			return true, nil
		}
		s.swapping.Store(nil)
		return written, f
	}
	s.swapping.Store(&hook)
}

// TestLeadersTakeTurns: the one that was deposed stands by, and takes over again, again
// and again. Under BSP nobody runs ahead of the others meanwhile.
func TestLeadersTakeTurns(t *testing.T) {
	together(t)
	l := newLeague(t, smallJob(ps.Consistency{Mode: ps.BSP}))
	leader, other := l.both(0, false)
	l.server("s1")
	l.placed()
	workers := []*ps.Worker{l.worker("w1"), l.worker("w2"), l.worker("w3")}
	clocks := float32(0)
	steps := func() {
		for range 5 {
			l.step("a", smallElems, workers...)
			clocks++
		}
		l.requireValue(workers[0], 3*clocks)
	}
	steps()
	for range 4 {
		leader.signal(syscall.SIGSTOP)
		m := starved.Watch(t)
		done := make(chan struct{})
		go func() { defer close(done); steps() }()
		l.takesOver(other, m)
		leader.signal(syscall.SIGCONT)
		leader.expect("deposed")
		<-done
		leader, other = other, leader
	}
	require.Equal(t, uint32(clocks), workers[0].Clock())
}

// TestT13VersionAcrossLeaders: the version of the map does not go back when another
// coordinator takes over, and a client with an old route is redirected.
func TestT13VersionAcrossLeaders(t *testing.T) {
	together(t)
	l := newLeague(t, stuckJob())
	leader, other := l.both(0, false)
	l.server("s1")
	l.placed()
	l.server("s2")
	w := l.worker("w")
	var version uint64
	newer := func() {
		v := l.status().Map.Version
		require.GreaterOrEqual(t, v, version)
		version = v
	}
	pushes := float32(0)
	for round := range 2 {
		newer()
		stale, epoch := w.Route(0)
		l.move(0, shard.ServerID(fmt.Sprintf("s%d", 2-round)))
		newer()
		leader.kill()
		l.takesOver(other, starved.Watch(t))
		newer()
		w.Rewind(0, stale, epoch)
		require.NoError(t, w.Push(l.ctx, "a", vector(stuckElems, -1)))
		pushes++
		l.returned("s1", "s2")
		if round == 0 {
			leader, other = other, l.run("c1", 0, false)
		}
	}
	got := make([]float32, stuckElems)
	require.NoError(t, w.Pull(l.ctx, "a", got))
	require.Equal(t, vector(stuckElems, pushes), got)
	l.oneOwner()
}
