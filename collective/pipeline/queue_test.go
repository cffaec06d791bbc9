package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/pipeline"
	"github.com/elasticps/elasticps/internal/leak"
	"github.com/elasticps/elasticps/shard/store"
)

const patience = time.Minute

func background(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// onAll calls f for all ranks at once and returns their errors.
func onAll(n int, f func(rank int) error) []error {
	errs := make([]error, n)
	done := make(chan struct{}, n)
	for rank := range n {
		go func() {
			errs[rank] = f(rank)
			done <- struct{}{}
		}()
	}
	for range n {
		<-done
	}
	return errs
}

// ranks are groups and nodes, either all in one node and without sockets, or each with a node
// of its own that others reach by TCP.
func ranks(t *testing.T, n int, apart bool) ([]*collective.Group, []*actor.Node) {
	t.Helper()
	groups, nodes := make([]*collective.Group, n), make([]*actor.Node, n)
	cfg := collective.Config{Size: n, Local: &collective.Local{}, NoCalibration: true}
	if apart {
		s, err := store.NewMemory(store.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		cfg.Local, cfg.Store = nil, s
	}
	for i := range nodes {
		if i > 0 && !apart {
			nodes[i] = nodes[0]
			continue
		}
		var err error
		nodes[i], err = actor.Start(background(t), actor.Config{Name: fmt.Sprint("n", i), Secret: "of the test", Suspicion: patience})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, nodes[i].Close()) })
	}
	require.NoError(t, errors.Join(onAll(n, func(rank int) (err error) {
		own := cfg
		own.Rank = rank
		groups[rank], err = collective.Join(background(t), own)
		return err
	})...))
	t.Cleanup(func() {
		for _, g := range groups {
			require.NoError(t, g.Close())
		}
	})
	return groups, nodes
}

// everywhere runs a test with stages in one process and with stages apart.
func everywhere(t *testing.T, test func(t *testing.T, apart bool)) {
	for _, apart := range []bool{false, true} {
		t.Run(map[bool]string{false: "one node", true: "nodes"}[apart], func(t *testing.T) {
			leak.Check(t, 20*time.Second)
			test(t, apart)
		})
	}
}

// queue is one from rank 0 to rank 1, of tensors of 4 elements.
func queue(t *testing.T, apart bool, depth int) (*pipeline.Outlet, *pipeline.Inlet, []*collective.Group) {
	t.Helper()
	groups, nodes := ranks(t, 2, apart)
	in, err := pipeline.OpenInlet(background(t), pipeline.InletConfig{Node: nodes[1], Name: "in", Group: groups[1], From: 0, Elems: 4, Depth: depth})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, in.Close()) })
	if apart {
		require.NoError(t, nodes[0].AddPeer("n1", nodes[1].Addr()))
	}
	out, err := pipeline.OpenOutlet(pipeline.OutletConfig{Node: nodes[0], To: in.Ref(), Group: groups[0], Rank: 1, Depth: depth})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, out.Close()) })
	return out, in, groups
}

// A sender waits while the queue is full, until its context ends or there is room; what it
// could not put was not sent, and everything else arrives in order.
func TestFullQueueMakesTheSenderWait(t *testing.T) {
	everywhere(t, func(t *testing.T, apart bool) {
		const depth = 3
		out, in, _ := queue(t, apart, depth)
		n := 0
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			err := out.Put(ctx, n, []float32{float32(n), 1, 2, 3})
			cancel()
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				var e *pipeline.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, n, e.Micro)
				break
			}
			n++
		}
		require.Equal(t, depth, n)
		waits := make(chan error, 1)
		go func() { waits <- out.Put(background(t), n, []float32{float32(n), 1, 2, 3}) }()
		for micro := range n + 1 {
			got, err := in.Take(background(t))
			require.NoError(t, err)
			require.Equal(t, micro, got.Micro)
			require.Equal(t, []float32{float32(micro), 1, 2, 3}, got.Values)
			got.Release()
		}
		require.NoError(t, <-waits)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		_, err := in.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, out.Put(background(t), 9, make([]float32, 4)))
		got, err := in.Take(background(t))
		require.NoError(t, err)
		require.Equal(t, 9, got.Micro)
		got.Release()
	})
}

// A context that has ended sends nothing, though there is room.
func TestPutWithAnEndedContext(t *testing.T) {
	everywhere(t, func(t *testing.T, apart bool) {
		out, in, groups := queue(t, apart, 2)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for micro := range 50 {
			require.ErrorIs(t, out.Put(ended, micro, make([]float32, 4)), context.Canceled)
		}
		require.NoError(t, groups[0].Err())
		require.NoError(t, out.Put(background(t), 50, make([]float32, 4)))
		got, err := in.Take(background(t))
		require.NoError(t, err)
		require.Equal(t, 50, got.Micro)
		got.Release()
		require.NoError(t, out.Close())
		require.NoError(t, out.Close())
		require.ErrorIs(t, out.Put(background(t), 51, make([]float32, 4)), pipeline.ErrClosed)
	})
}

// A receiver that is gone ends the group, with the reason at the sender.
func TestReceiverIsGone(t *testing.T) {
	everywhere(t, func(t *testing.T, apart bool) {
		out, in, groups := queue(t, apart, 1)
		require.NoError(t, out.Put(background(t), 0, make([]float32, 4)))
		require.NoError(t, in.Close())
		<-groups[0].Done()
		require.Eventually(t, func() bool { return out.Err() != nil }, patience, time.Millisecond)
		for _, err := range []error{out.Err(), out.Put(background(t), 1, make([]float32, 4))} {
			require.ErrorIs(t, err, collective.ErrAborted)
		}
		require.ErrorIs(t, out.Err(), actor.ErrNoProcess)
		_, err := in.Take(background(t))
		if err == nil { // what it had got is there
			_, err = in.Take(background(t))
		}
		require.Error(t, err)
	})
}

// When the group ends, whoever waits at a queue hears why.
func TestQueueEndsWithTheGroup(t *testing.T) {
	everywhere(t, func(t *testing.T, apart bool) {
		out, in, groups := queue(t, apart, 1)
		took := make(chan error, 1)
		go func() {
			_, err := in.Take(background(t))
			took <- err
		}()
		groups[0].Abort()
		require.ErrorIs(t, <-took, collective.ErrAborted)
		require.ErrorIs(t, out.Put(background(t), 0, make([]float32, 4)), collective.ErrAborted)
	})
	everywhere(t, func(t *testing.T, apart bool) {
		out, _, groups := queue(t, apart, 1)
		require.NoError(t, out.Put(background(t), 0, make([]float32, 4)))
		put := make(chan error, 1)
		go func() { put <- out.Put(background(t), 1, make([]float32, 4)) }() // it is full
		groups[1].Abort()
		require.ErrorIs(t, <-put, collective.ErrAborted)
	})
}

func TestQueueRefuses(t *testing.T) {
	leak.Check(t, 20*time.Second)
	out, in, groups := queue(t, false, 1)
	require.NoError(t, out.Put(background(t), 0, make([]float32, 4)))
	got, err := in.Take(background(t))
	require.NoError(t, err)
	got.Release()
	require.Error(t, out.Put(background(t), 1, make([]float32, 5)))
	_, err = in.Take(background(t))
	require.ErrorContains(t, errors.Join(err, out.Put(background(t), 2, nil)), "micro-batch 1 of 5 elements from rank 0, must be 4")
	_, nodes := ranks(t, 2, false)
	for want, cfg := range map[string]pipeline.InletConfig{
		"needs a Node and a Group":      {},
		"from rank 2, must be another":  {Node: nodes[0], Group: groups[0], From: 2, Elems: 1},
		"of 0 elements, must be 1":      {Node: nodes[0], Group: groups[0], From: 1},
		"depth -1, must be 1 to":        {Node: nodes[0], Group: groups[0], From: 1, Elems: 1, Depth: -1},
		"from rank 0, must be another ": {Node: nodes[0], Group: groups[0], From: 0, Elems: 1},
	} {
		_, err = pipeline.OpenInlet(background(t), cfg)
		require.ErrorIs(t, err, collective.ErrArgument)
		require.ErrorContains(t, err, want)
	}
	_, err = pipeline.OpenOutlet(pipeline.OutletConfig{Node: nodes[0], Group: groups[0], Rank: 0})
	require.ErrorIs(t, err, collective.ErrArgument)
}
