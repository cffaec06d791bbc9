package ps_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
)

// T2, slow starter: one participant starts late; all proceed, or fail by the given
// deadline and name the missing one.

// lateness is how much later it starts.
func lateness() time.Duration {
	if testing.Short() || underRace {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// late calls f when a participant is due that starts late.
func late(f func()) { <-time.After(lateness()); f() }

func TestT2SlowStarter(t *testing.T) {
	together(t)
	for name, f := range map[string]func(*testing.T){
		"server": lateServer, "worker": lateWorker,
		"coordinator":      func(t *testing.T) { lateCoordinator(t, false) },
		"coordinator node": func(t *testing.T) { lateCoordinator(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they do nothing but wait
			f(t)
		})
	}
}

func lateServer(t *testing.T) {
	job := smallJob(ps.Consistency{})
	job.MinServers = 2
	c := newCluster(t, job)
	c.server("s1")
	w := c.worker("w")
	ctx, cancel := context.WithTimeout(c.ctx, 100*time.Millisecond)
	defer cancel()
	err := w.Push(ctx, "a", vector(smallElems, -1))
	require.ErrorIs(t, err, ps.ErrNotPlaced)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "1 of 2 servers have joined")
	pushed := make(chan error, 1)
	go func() { pushed <- w.Push(c.ctx, "a", vector(smallElems, -1)) }()
	late(func() { c.server("s2") })
	require.NoError(t, <-pushed)
	c.requireValue(w, 1)
	c.oneOwner()
}

func lateWorker(t *testing.T) {
	c := newCluster(t, smallJob(ps.Consistency{Mode: ps.BSP}))
	c.server("s1")
	w1 := c.worker("w1")
	want := float32(0)
	for begin := time.Now(); time.Since(begin) < lateness()/4; want++ {
		c.step("a", smallElems, w1) // nobody waits for who has not come
	}
	w2 := c.worker("w2")
	require.Equal(t, w1.Clock(), w2.Clock())
	c.requireValue(w2, want)
	c.step("a", smallElems, w1, w2)
	c.requireValue(w1, want+2)
}

// lateCoordinator: its process starts late on a node that runs, or its node as well.
func lateCoordinator(t *testing.T, nodeToo bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	addr := freeAddr(t)
	node := func(name, listen string) *actor.Node {
		cfg := actor.Config{Name: name, Listen: listen, Secret: "secret of the test"}
		if name != "home" {
			cfg.Peers = map[string]string{"home": addr}
		}
		n, err := actor.Start(ctx, cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	var home *actor.Node
	if !nodeToo {
		home = node("home", addr)
	}
	ref := actor.Ref{Node: "home", Name: ps.CoordinatorProcess}
	serving, working := node("s1", ""), node("w", "")

	short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	_, err := ps.StartServer(short, ps.ServerConfig{Node: serving, ID: "s1", Coordinator: ref})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "ps/coordinator@home")
	_, err = ps.StartWorker(short, ps.ClientConfig{Node: working, Name: "w", Coordinator: ref})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "ps/coordinator@home")

	started := make(chan error, 2)
	var s *ps.Server
	var w *ps.Worker
	go func() {
		var err error
		s, err = ps.StartServer(ctx, ps.ServerConfig{Node: serving, ID: "s1", Coordinator: ref})
		started <- err
	}()
	go func() {
		var err error
		w, err = ps.StartWorker(ctx, ps.ClientConfig{Node: working, Name: "w", Coordinator: ref})
		started <- err
	}()
	late(func() {
		if nodeToo {
			home = node("home", addr)
		}
		coord, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: home, Job: smallJob(ps.Consistency{})})
		require.NoError(t, err)
		t.Cleanup(func() { _ = coord.Close() })
	})
	require.NoError(t, <-started)
	require.NoError(t, <-started)
	defer s.Close()
	defer w.Close()
	require.NoError(t, w.Push(ctx, "a", vector(smallElems, -1)))
}
