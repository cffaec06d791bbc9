package ps_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// within replaces the deadline of the whole test.
func (c *cluster) within(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	c.t.Cleanup(cancel)
	c.ctx = ctx
}

// serverWith is server with other settings.
func (c *cluster) serverWith(id shard.ServerID, change func(*ps.ServerConfig)) *ps.Server {
	c.t.Helper()
	cfg := ps.ServerConfig{Node: c.nodeFor(string(id)), ID: id, Coordinator: c.coord.Ref(), Logger: c.log}
	change(&cfg)
	s, err := ps.StartServer(c.ctx, cfg)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = s.Close() })
	return s
}

// workerOn starts a worker on a node that it shares with others.
func (c *cluster) workerOn(n *actor.Node, name string) *ps.Worker {
	c.t.Helper()
	w, err := ps.StartWorker(c.ctx, ps.ClientConfig{Node: n, Name: name, Coordinator: c.ref(), Logger: c.log})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = w.Close() })
	return w
}

// parallel runs f for 0 to n-1 at the same time and requires that none fails.
func parallel(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		require.NoError(t, failed[0], "the first of %d errors", len(failed))
	}
}

// totals are the pushes and rows that the servers say they have, all together.
func (c *cluster) totals() ps.ServerLoad {
	c.t.Helper()
	sum, err := c.loads()
	require.NoError(c.t, err)
	return sum
}

// loads is totals on any goroutine: it requires nothing.
func (c *cluster) loads() (sum ps.ServerLoad, err error) {
	st, err := c.admin.Status(c.ctx)
	if err != nil {
		return sum, err
	}
	for _, s := range st.Servers {
		load, err := c.admin.Load(c.ctx, s)
		if err != nil {
			return sum, err
		}
		sum.PushesApplied += load.PushesApplied
		sum.Rows += load.Rows
		sum.RowsSkipped += load.RowsSkipped
	}
	return sum, nil
}

// applied is the number of pushes that the servers say they have applied.
func (c *cluster) applied() uint64 { return c.totals().PushesApplied }

// swapOwners moves every shard to the other of two servers.
func (c *cluster) swapOwners(a, b shard.ServerID) ([]ps.MoveReport, error) {
	st, err := c.admin.Status(c.ctx)
	if err != nil {
		return nil, err
	}
	var reports []ps.MoveReport
	for _, x := range st.Map.Assignments {
		to := a
		if x.Owner == a {
			to = b
		}
		r, err := c.admin.Move(c.ctx, x.Shard, to)
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// swapping swaps owners again and again until it is stopped, and calls a function between two
// swaps; stop returns the moves.
func (c *cluster) swapping(a, b shard.ServerID, between func() error) (stop func() []ps.MoveReport) {
	end, ended := make(chan struct{}), make(chan struct{})
	var reports []ps.MoveReport
	var failed error
	go func() {
		defer close(ended)
		for failed == nil {
			select {
			case <-end:
				return
			default:
			}
			var more []ps.MoveReport
			more, failed = c.swapOwners(a, b)
			reports = append(reports, more...)
			if failed == nil {
				failed = between()
			}
		}
	}()
	return func() []ps.MoveReport {
		close(end)
		<-ended
		require.NoError(c.t, failed)
		return reports
	}
}

// letThrough waits until a push has been applied, 50 ms at most. One that comes back to its shard
// after each move, and finds the next one begun, would wait for as long as that goes on.
func (c *cluster) letThrough() error {
	before, err := c.loads()
	for now, end := before, time.Now().Add(50*time.Millisecond); err == nil && now.PushesApplied == before.PushesApplied && time.Now().Before(end); {
		now, err = c.loads()
	}
	return err
}

// patient is for tests that load the machine so much that a live party may be
// silent for longer than the default suspicion time, and a step of a move take longer.
func patient(c *cluster) {
	c.suspicion, c.cfg.StepTimeout = 20*time.Second, patience
	c.home = nil // the next one connects to none
	c.home = c.node("patient-home")
	c.cfg.Node = c.home
}
