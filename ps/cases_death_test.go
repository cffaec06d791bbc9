package ps_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Workers that die, hang and come back.

const smallElems = 50

func smallJob(c ps.Consistency) ps.Job {
	return ps.Job{
		Model:     shard.Model{Layers: []shard.Layer{layer("a", smallElems), layer("b", 10)}},
		Optimizer: ps.SGD(1), Consistency: c,
	}
}

// step is one clock of some workers: each pushes one and ticks.
func (c *cluster) step(layer string, elems int, workers ...*ps.Worker) {
	c.t.Helper()
	parallel(c.t, len(workers), func(i int) error {
		if err := workers[i].Push(c.ctx, layer, vector(elems, -1)); err != nil {
			return err
		}
		return workers[i].Tick(c.ctx)
	})
}

func (c *cluster) requireValue(w interface {
	Pull(context.Context, string, []float32) error
}, want float32,
) {
	c.t.Helper()
	got := make([]float32, smallElems)
	require.NoError(c.t, w.Pull(c.ctx, "a", got))
	require.Equal(c.t, vector(smallElems, want), got)
}

func TestWorkerDiesUnderBSP(t *testing.T) {
	for name, s := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hung": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			settled(t)
			c := newCluster(t, smallJob(ps.Consistency{Mode: ps.BSP}))
			c.server("s1")
			c.placed()
			w1, w2 := c.worker("w1"), c.worker("w2")
			w3 := c.process("worker", "w3")
			w3.send("push a 50")
			w3.send("tick")
			c.step("a", smallElems, w1, w2)
			w3.expect("ok")
			w3.expect("ok")
			c.requireValue(w1, 3)
			require.Equal(t, "ok", w3.tell("push a 50"))
			w3.signal(s)
			m := starved.Watch(t)
			c.step("a", smallElems, w1, w2)
			m.Less(m.Took(), 5*time.Second) // the others go on within the suspicion time
			c.requireValue(w1, 6)           // what it has been told was pushed counts
			c.step("a", smallElems, w1, w2)
			c.requireValue(w2, 8)
			if s == syscall.SIGKILL {
				return
			}
			w3.signal(syscall.SIGCONT)
			require.Equal(t, "not a member", w3.tell("push a 50"))
			require.Equal(t, "not a member", w3.tell("tick"))
			c.step("a", smallElems, w1, w2)
			c.requireValue(w2, 10)
			require.Equal(t, "not a member", w3.tell("tick"))
			again := c.worker("w3-again") // but it may join again
			c.step("a", smallElems, w1, w2, again)
			c.requireValue(again, 13)
		})
	}
}

// Under ASP nobody waits for a zombie, but its pushes are refused once the servers
// have heard that it is gone.
func TestZombieIsFencedUnderASP(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the time in which a coordinator takes nobody for gone")
	}
	together(t)
	c := newCluster(t, smallJob(ps.Consistency{}))
	c.server("s1")
	c.placed()
	w := c.process("worker", "w")
	require.Equal(t, "ok", w.tell("push a 50"))
	w.signal(syscall.SIGSTOP)
	eventually(t, "the worker is taken for dead", func() bool { return c.status().Members == 0 })
	w.signal(syscall.SIGCONT)
	want := float32(1)
	eventually(t, "its pushes are refused", func() bool {
		answer := w.tell("push a 50")
		if answer == "ok" {
			want++
		}
		return answer == "not a member"
	})
	c.requireValue(c.worker("reader"), want)
}

// TestSilentUnderASP: a worker and an observer that are silent for a while, or whose answers
// are lost, stay: nobody waits for them.
func TestSilentUnderASP(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, smallJob(ps.Consistency{}), options...)
		c.server("s1")
		c.placed()
		w, observer := c.worker("w"), c.client("observer")
		lost := c.lose("ps.aliveRequest", 4)
		for _, p := range []actor.Ref{ps.RefOf(w.Client), ps.RefOf(observer)} {
			require.NoError(t, c.home.Cast(c.ctx, c.ref(), actor.Down{Ref: p}))
		}
		eventually(t, "both were asked again", func() bool { return lost.Load() >= 6 })
		require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
		c.requireValue(observer, 1)
		require.Equal(t, 1, c.status().Members)
	})
}

// A coordinator that is restarted in the middle of a job under BSP or SSP does not
// let anybody run ahead of members that are still on their way back.
func TestCoordinatorRestartsUnderClocks(t *testing.T) {
	for _, mode := range []ps.Consistency{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 2}} {
		t.Run(mode.Mode.String(), func(t *testing.T) {
			settled(t)
			everywhere(t, func(t *testing.T, options ...option) {
				c := newCluster(t, smallJob(mode), options...)
				c.server("s1")
				c.placed()
				const workers, clocks = 4, 60
				var all []*ps.Worker
				for _, name := range []string{"w1", "w2", "w3", "w4"} {
					all = append(all, c.worker(name))
				}
				reached := make(chan struct{}, workers*clocks)
				done := make(chan struct{})
				go func() {
					defer close(done)
					parallel(t, workers, func(i int) error {
						for range clocks {
							if err := all[i].Push(c.ctx, "a", vector(smallElems, -1)); err != nil {
								return err
							}
							if err := all[i].Tick(c.ctx); err != nil {
								return err
							}
							reached <- struct{}{}
						}
						return nil
					})
				}()
				for range 2 {
					for range workers * clocks / 3 {
						select {
						case <-reached:
						case <-done: // sooner than expected
						case <-c.ctx.Done():
							require.FailNow(t, "the workers do not go on")
						}
					}
					require.NoError(t, c.coord.Close())
					c.startCoordinator()
				}
				<-done
				c.requireValue(all[0], workers*clocks)
				require.Equal(t, uint32(clocks), all[0].Clock())
			})
		})
	}
}
