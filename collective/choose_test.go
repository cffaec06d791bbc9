package collective

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/schedule"
)

// sockets is a model like that of ranks on one host.
func sockets(ranks int) *model {
	return &model{Ranks: ranks, Nodes: 1, Local: ranks, Latency: 20e-6, Gap: 5e-6, Byte: 1e-9, Spread: 1.2e-9, Combine: 0.1e-9, Far: 1}
}

func TestChoice(t *testing.T) {
	far := sockets(16)
	far.Nodes, far.Local, far.Far = 4, 4, 4
	crowded := sockets(4)
	crowded.Crowd = 2
	for name, c := range map[string]struct {
		m     *model
		call  Collective
		kind  Type
		op    Op
		bytes int
		fixed bool
		want  []schedule.Algorithm
	}{
		"small":              {sockets(4), AllReduce, Float32, Sum, 1 << 10, false, []schedule.Algorithm{schedule.Flat}},
		"nothing":            {sockets(4), AllReduce, Float32, Sum, 0, false, []schedule.Algorithm{schedule.Flat}},
		"small, many ranks":  {sockets(64), AllReduce, Float32, Sum, 64, false, []schedule.Algorithm{schedule.RecursiveDoubling}},
		"middle":             {sockets(16), AllReduce, Float32, Sum, 64 << 10, false, []schedule.Algorithm{schedule.HalvingDoubling, schedule.Direct}},
		"large":              {sockets(8), AllReduce, Float32, Sum, 64 << 20, false, []schedule.Algorithm{schedule.Ring, schedule.HalvingDoubling}},
		"no power of two":    {sockets(7), AllReduce, Float32, Sum, 64 << 20, false, []schedule.Algorithm{schedule.Ring}},
		"own processors":     {sockets(4), AllReduce, Float32, Sum, 16 << 10, false, []schedule.Algorithm{schedule.RecursiveDoubling}},
		"shared processors":  {crowded, AllReduce, Float32, Sum, 16 << 10, false, []schedule.Algorithm{schedule.Tree}},
		"nodes":              {far, AllReduce, Float32, Sum, 16 << 20, false, []schedule.Algorithm{schedule.Hierarchical}},
		"deterministic":      {sockets(8), AllReduce, Float32, Sum, 64 << 20, true, []schedule.Algorithm{schedule.Direct}},
		"deterministic, one": {sockets(8), Reduce, Float32, Sum, 64 << 20, true, []schedule.Algorithm{schedule.Direct}},
		"halves":             {sockets(8), AllReduce, Float16, Sum, 64 << 20, false, []schedule.Algorithm{schedule.Direct}},
		"small halves":       {sockets(8), AllReduce, BFloat16, Average, 64, false, []schedule.Algorithm{schedule.Flat}},
		"broadcast":          {sockets(8), Broadcast, Float32, 0, 64, false, []schedule.Algorithm{schedule.Tree}},
		"large broadcast":    {sockets(8), Broadcast, Float32, 0, 64 << 20, false, []schedule.Algorithm{schedule.Chain}},
		"one rank":           {sockets(1), AllReduce, Float32, Sum, 64, false, []schedule.Algorithm{schedule.Flat}},
		"to all":             {sockets(8), AllToAll, Float32, 0, 64, false, []schedule.Algorithm{schedule.Direct}},
	} {
		f := &Fingerprint{Collective: c.call, Type: c.kind, Op: c.op, Count: c.bytes / c.kind.Bytes()}
		require.Contains(t, c.want, c.m.choose(f, c.fixed), name)
	}
}

// What cannot be the best is not tried: it would take long where there are many ranks.
func TestWorthTrying(t *testing.T) {
	try := func(ranks, bytes int, deterministic bool) []schedule.Algorithm {
		f := &Fingerprint{Collective: AllReduce, Type: Float32, Op: Sum, Count: bytes / 4}
		some := sockets(ranks).worthTrying(f, deterministic)
		require.Equal(t, sockets(ranks).choose(f, deterministic), some[0], "the best first")
		return some
	}
	require.ElementsMatch(t, sockets(4).reducers(), try(4, 1<<10, false))
	require.NotContains(t, try(256, 256<<10, false), schedule.Flat)
	require.NotContains(t, try(256, 1<<10, false), schedule.Ring)
	require.NotEmpty(t, try(2, 0, false))
	require.ElementsMatch(t, folders(), try(4, 1<<10, true))
}

func TestSegments(t *testing.T) {
	f := &Fingerprint{Collective: AllReduce, Type: Float32, Algorithm: schedule.Ring}
	for _, c := range []struct{ count, streams, forced, want int }{
		{1, 1, 0, minSegment},
		{16 << 20, 1, 0, maxSegment},
		{1 << 20, 1, 0, maxSegment}, // two in each part
		{1 << 20, 4, 0, minSegment}, // one for each connection
		{4 << 20, 1, 1000, 1000},
		{4 << 20, 1, 8 << 20, maxFrame},
	} {
		f.Count = c.count
		require.Equal(t, c.want, segmentBytes(f, 4, c.streams, c.forced), "%+v", c)
	}
}

// In steady state a call costs a handful of small allocations, however large it is.
func TestBudgetAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	local := &Local{}
	ctx := t.Context()
	groups := make([]*Group, 2)
	done := make(chan error, 1)
	join := func(i int) (err error) {
		groups[i], err = Join(ctx, Config{Rank: i, Size: 2, Local: local, NoCalibration: true})
		return err
	}
	go func() { done <- join(1) }()
	require.NoError(t, join(0))
	require.NoError(t, <-done)
	x, y := make([]float32, 1<<18), make([]float32, 1<<18)
	call := func(i int, x []float32) error { return groups[i].AllReduce(ctx, Of(x), Of(x), Sum) }
	const runs = 100
	go func() {
		for range runs + 1 {
			if err := call(1, y); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	n := testing.AllocsPerRun(runs, func() {
		if err := call(0, x); err != nil {
			panic(err)
		}
	})
	require.NoError(t, <-done)
	for _, g := range groups {
		require.NoError(t, g.Close())
	}
	t.Log("allocations of both ranks per call:", n)
	require.LessOrEqual(t, n, 24.0)
}
