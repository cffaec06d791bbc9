package ps_test

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// crash ends the coordinator from within a step: when it returns nothing more of the
// step will be done.
func (c *cluster) crash() {
	coord := c.coord
	go coord.Close()
	for {
		ctx, cancel := context.WithTimeout(c.ctx, patience)
		_, err := c.home.Call(ctx, coord.Ref(), struct{}{})
		cancel()
		if errors.Is(err, actor.ErrNoProcess) || c.ctx.Err() != nil {
			return
		}
	}
}

// undoing are the steps of the way back, with the step at which the target has to
// die for a move to take them.
var undoing = map[shard.EffectKind]shard.EffectKind{
	shard.EffectPersistAbort:  shard.EffectFollow,
	shard.EffectThaw:          shard.EffectFreeze,
	shard.EffectDiscard:       shard.EffectPrepare,
	shard.EffectCommitRestore: shard.EffectActivate,
	shard.EffectRestore:       shard.EffectCommit,
}

func TestT16CoordinatorKilledAtEachStep(t *testing.T) {
	together(t)
	for i, at := range forward {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, options ...option) {
				s := &steps{}
				c := newCluster(t, stuckJob(), append([]option{patient, s.install}, options...)...)
				c.server("s1")
				c.placed()
				c.server("s2")
				tr := c.traffic("a", stuckElems, c.worker("w1"), c.worker("w2"))
				tr.goesOn()
				want := shard.ServerID("s1")
				if i >= 5 { // committed
					want = "s2"
				}
				c.interrupted(s, at)
				tr.goesOn()
				c.resumed(i > 0, want, "s1", "s2")
				c.server("s3")
				require.Equal(t, shard.Moved, c.try("s3").Outcome)
				tr.goesOn()
				tr.exact()
				c.oneOwner()
			})
		})
	}
}

func TestT16CoordinatorKilledWhileUndoing(t *testing.T) {
	together(t)
	for at, death := range undoing {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			s := &steps{}
			c := newCluster(t, stuckJob(), patient, s.install) // one that hangs is not taken for dead
			c.server("s1")
			c.placed()
			target := c.process("server", "s2")
			c.server("s3")
			tr := c.traffic("a", stuckElems, c.worker("w1"), c.worker("w2"))
			tr.goesOn()
			c.interrupted(s, at, func(e shard.Effect) {
				switch {
				case e.Kind == death && at == shard.EffectDiscard: // from a dead target nothing is discarded
					target.signal(syscall.SIGSTOP)
				case e.Kind == death && at == shard.EffectThaw: // with all that it has confirmed it would not be missed yet
					target.signal(syscall.SIGSTOP)
					tr.advance()
				case e.Kind == death:
					target.kill()
				}
			})
			tr.goesOn()
			c.resumed(true, "s1", "s1", "s3")
			require.Equal(t, shard.Moved, c.try("s3").Outcome)
			tr.goesOn()
			tr.exact()
			c.oneOwner()
		})
	}
}

// interrupted begins a move of shard 0 to s2, crashes the coordinator when the move
// comes to a step, and starts another one on the same store.
func (c *cluster) interrupted(s *steps, at shard.EffectKind, more ...func(shard.Effect)) {
	c.t.Helper()
	crashed := make(chan struct{})
	hook := func(e shard.Effect) {
		for _, f := range more {
			f(e)
		}
		if e.Kind == at {
			c.crash()
			close(crashed)
		}
	}
	s.hook.Store(&hook)
	ctx, cancel := context.WithCancel(c.ctx)
	answered := make(chan struct{})
	go func() {
		_, _ = c.admin.Move(ctx, 0, "s2") // the coordinator that was asked does not answer
		close(answered)
	}()
	select {
	case <-crashed:
	case <-c.ctx.Done():
		require.FailNow(c.t, "the move did not come to the step")
	}
	cancel()
	<-answered
	s.hook.Store(nil)
	require.NoError(c.t, c.coord.Close())
	c.startCoordinator()
}

// resumed waits until the new coordinator has ended the move that the old one has
// left behind, and requires that the shard is where it should be.
func (c *cluster) resumed(begun bool, want shard.ServerID, live ...shard.ServerID) {
	c.t.Helper()
	if begun {
		eventually(c.t, "the move is ended", func() bool { return len(c.status().Moves) == 1 })
	}
	for _, s := range live {
		eventually(c.t, string(s)+" is back", func() bool { return c.isUp(s) })
	}
	require.Equal(c.t, want, c.owner(0))
}

// The same with a coordinator that is killed by the operating system and a store in
// a file.
func TestT16CoordinatorProcessKilledAtEachStep(t *testing.T) {
	for i, at := range forward {
		t.Run(at.String(), func(t *testing.T) {
			together(t)
			c := newFarm(t)
			first := c.run(at)
			c.server("s1")
			c.placed()
			c.server("s2")
			tr := c.traffic("a", stuckElems, c.worker("w1"), c.worker("w2"))
			tr.goesOn()
			ctx, cancel := context.WithCancel(c.ctx)
			answered := make(chan struct{})
			go func() {
				_, _ = c.admin.Move(ctx, 0, "s2") // nobody answers
				close(answered)
			}()
			first.expect("halt")
			first.kill()
			cancel()
			<-answered
			c.run(0)
			tr.goesOn()
			want := shard.ServerID("s1")
			if i >= 5 {
				want = "s2"
			}
			c.resumed(i > 0, want, "s1", "s2")
			require.Equal(t, shard.Moved, c.try(map[shard.ServerID]shard.ServerID{"s1": "s2", "s2": "s1"}[want]).Outcome)
			tr.goesOn()
			tr.exact()
			c.oneOwner()
		})
	}
}

// farm is a cluster whose coordinator is a process of its own.
type farm struct {
	*cluster
	role role
	ran  []*process
}

func newFarm(t *testing.T) *farm {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	addr := freeAddr(t)
	f := &farm{cluster: &cluster{t: t, ctx: ctx, secret: "secret of the test", log: logger()}}
	f.role = role{
		Kind: "coordinator", Secret: f.secret, Home: "home", Addr: addr,
		Job: stuckJob(), Bolt: filepath.Join(t.TempDir(), "store.bolt"),
	}
	t.Cleanup(func() { // after the workers have left
		for _, p := range f.ran {
			p.end()
		}
	})
	f.remote = &actor.Ref{Node: "home", Name: ps.CoordinatorProcess}
	f.peers = map[string]string{"home": addr}
	var err error
	f.admin, err = ps.NewAdmin(f.node("admin"), *f.remote)
	require.NoError(t, err)
	return f
}

// run starts the coordinator's process; it halts at a step.
func (f *farm) run(haltAt shard.EffectKind) *process {
	f.t.Helper()
	r := f.role
	r.HaltAt = haltAt
	p := r.launch(f.t)
	f.ran = append(f.ran, p)
	p.expect("ready")
	return p
}

// TestCoordinatorThatSleptForgetsNobody stops the coordinator until everybody has given
// its connections up. When it goes on it finds that all are silent, because it was.
func TestCoordinatorThatSleptForgetsNobody(t *testing.T) {
	settled(t)
	c := newFarm(t)
	c.role.Job = tinyJob(ps.BSP, layer("a", 10))
	home := c.run(0)
	c.server("s1")
	n := c.node("w")
	w, o := c.workerOn(n, "w"), c.client("o")
	step := func() {
		t.Helper()
		require.NoError(t, w.Push(c.ctx, "a", vector(10, -1)))
		require.NoError(t, o.Push(c.ctx, "a", vector(10, -1)))
		require.NoError(t, w.Tick(c.ctx))
	}
	step()
	joined := c.status().Workers
	home.signal(syscall.SIGSTOP)
	eventually(t, "the connection is given up", func() bool { return len(n.Peers()) == 0 })
	home.signal(syscall.SIGCONT)
	eventually(t, "the server is up", func() bool { return c.isUp("s1") })
	for range 100 {
		step()
	}
	st := c.status()
	require.Len(t, st.Workers, len(joined))
	for i, was := range joined {
		require.Equal(t, was.Incarnation, st.Workers[i].Incarnation)
	}
	got := make([]float32, 10)
	require.NoError(t, w.Pull(c.ctx, "a", got))
	require.Equal(t, vector(10, 202), got)
}
