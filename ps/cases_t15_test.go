package ps_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// still is the part of a status that no refused order may change.
func (c *cluster) still() ps.Status {
	c.t.Helper()
	st := c.status()
	st.Uptime, st.Workers = 0, nil
	for i := range st.Servers {
		st.Servers[i].Load, st.Servers[i].Latency, st.Servers[i].RTT = ps.ServerLoad{}, ps.LatencySummary{}, 0
	}
	return st
}

// T15, plan validation: a wrong order is refused with its reason and changes nothing.
func TestT15OrdersAreValidated(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		s := &steps{}
		c := newCluster(t, stuckJob(), append(options, s.install)...)
		c.server("s1")
		c.placed()
		c.server("s2")
		c.server("s3")
		require.NoError(t, c.admin.Drain(c.ctx, "s3", true))
		before := c.still()
		long := shard.ServerID(make([]byte, shard.MaxServerIDBytes+1))
		for name, move := range map[string]struct {
			shard  shard.ID
			to     shard.ServerID
			reason shard.Refusal
		}{
			"unknown shard":          {2, "s2", shard.UnknownShard},
			"shard over every limit": {math.MaxUint32, "s2", shard.UnknownShard},
			"unknown server":         {0, "s9", shard.UnknownServer},
			"no server":              {0, "", shard.UnknownServer},
			"server name too long":   {0, long, shard.UnknownServer},
			"same server":            {0, "s1", shard.SameServer},
			"draining target":        {0, "s3", shard.DrainingTarget},
		} {
			_, err := c.admin.Move(c.ctx, move.shard, move.to)
			require.ErrorIs(t, err, shard.ErrMoveRefused, name)
			require.ErrorContains(t, err, move.reason.String(), name)
		}
		require.ErrorIs(t, c.admin.Drain(c.ctx, "s9", true), ps.ErrConflict)
		require.ErrorIs(t, c.admin.Remove(c.ctx, "s1"), ps.ErrConflict, "it still owns shards")
		require.NoError(t, c.admin.Remove(c.ctx, "s9"), "there is none, as after a removal whose answer was lost")
		require.Equal(t, before, c.still())
		c.movedTwice(s)
	})
}

// movedTwice moves a shard that has a move under way.
func (c *cluster) movedTwice(s *steps) {
	t := c.t
	reached, proceed := make(chan struct{}), make(chan struct{})
	s.once(shard.EffectFollow, func() {
		close(reached)
		<-proceed
	})
	ended := make(chan error, 1)
	go func() {
		r, err := c.admin.Move(c.ctx, 0, "s2")
		if err == nil {
			err = r.Err()
		}
		ended <- err
	}()
	<-reached
	before := c.still()
	_, err := c.admin.Move(c.ctx, 0, "s2")
	require.ErrorIs(t, err, ps.ErrConflict)
	require.ErrorIs(t, c.admin.Remove(c.ctx, "s2"), ps.ErrConflict, "a shard is on its way there")
	require.Equal(t, before, c.still())
	close(proceed)
	require.NoError(t, <-ended, "the move under way is not disturbed")
	require.Equal(t, shard.ServerID("s2"), c.owner(0))
}

// Every fault of a configuration is reported at once, with the value.
func TestT15ConfigurationsAreValidated(t *testing.T) {
	settled(t)
	c := newCluster(t, stuckJob(), oneNode)
	long := string(make([]byte, 200))
	node, ref := c.home, c.ref()

	start := func(cfg ps.CoordinatorConfig) error {
		_, err := ps.StartCoordinator(c.ctx, cfg)
		return err
	}
	err := start(ps.CoordinatorConfig{
		Job:      ps.Job{Name: long, MaxShardBytes: -1, MinServers: -2, Consistency: ps.Consistency{Mode: 9}},
		MaxMoves: -3, StepTimeout: -time.Second, CopyTimeout: -time.Second,
	})
	for _, text := range []string{"Node", "200", "MaxShardBytes -1", "MinServers -2", "mode 9", "-3", "-1s", "0 layers", "ptimizer"} {
		require.ErrorContains(t, err, text)
	}
	for name, change := range map[string]func(*ps.Job){
		"NaN rate":         func(j *ps.Job) { j.Optimizer = ps.SGD(math.NaN()) },
		"infinite rate":    func(j *ps.Job) { j.Optimizer = ps.SGD(math.Inf(1)) },
		"negative rate":    func(j *ps.Job) { j.Optimizer = ps.SGD(-1) },
		"no optimizer":     func(j *ps.Job) { j.Optimizer = ps.Optimizer{} },
		"staleness of BSP": func(j *ps.Job) { j.Consistency = ps.Consistency{Mode: ps.BSP, Staleness: 1} },
		"no layer":         func(j *ps.Job) { j.Model = shard.Model{} },
		"negative size":    func(j *ps.Job) { j.Model.Layers = []shard.Layer{layer("x", -1)} },
		"wrong type":       func(j *ps.Job) { j.Model.Layers = []shard.Layer{{Name: "x", Shape: []int{1}, DType: shard.Float16}} },
		"sparse":           func(j *ps.Job) { j.Model.Layers = []shard.Layer{{Name: "x", Shape: []int{1, 1}, Sparse: true}} },
		"same name twice":  func(j *ps.Job) { j.Model.Layers = []shard.Layer{layer("x", 1), layer("x", 2)} },
		"tiny shards":      func(j *ps.Job) { j.MaxShardBytes = shard.MinShardBytes - 1 },
	} {
		job := stuckJob()
		change(&job)
		require.Error(t, start(ps.CoordinatorConfig{Node: node, Job: job}), name)
	}
	_, err = ps.StartServer(c.ctx, ps.ServerConfig{ID: shard.ServerID(long), ReportInterval: -1, WriteTimeout: -1, Listen: "nowhere"})
	for _, text := range []string{"Node", "200", "Coordinator", "-1ns", "nowhere"} {
		require.ErrorContains(t, err, text)
	}
	_, err = ps.StartServer(c.ctx, ps.ServerConfig{Node: node, Coordinator: ref})
	require.ErrorContains(t, err, "ID of 0 bytes")
	_, err = ps.StartWorker(c.ctx, ps.ClientConfig{Timeout: -1, ReportInterval: -2})
	for _, text := range []string{"Node", "Coordinator", "name of 0 bytes", "-1ns", "-2ns"} {
		require.ErrorContains(t, err, text)
	}
	_, err = ps.Dial(c.ctx, ps.ClientConfig{Node: node, Coordinator: actor.Ref{Node: "BAD NAME", Name: "x"}, Name: "w", Timeout: time.Second})
	require.Error(t, err)
	c.server("s1")
	require.NoError(t, c.worker("w").Push(c.ctx, "b", vector(10, -1)), "the job was not disturbed")
}
