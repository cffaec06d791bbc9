package sim_test

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/sim"
)

// register is a block whose updates add up: the set of those that it contains.
var register = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		set, op := state.(uint64), input.(sim.Operation)
		if op.IsPush {
			return true, set | op.Set
		}
		return op.Set == set, set
	},
}

// operations are those of one block. A push without an answer ends when the first pull that
// shows it does. One that no pull shows may have happened after all of them: it is left out.
func operations(all []sim.Operation, block int) (ops []porcupine.Operation) {
	shown := map[uint64]time.Duration{}
	for _, op := range all {
		if op.IsPush || op.Block != block {
			continue
		}
		for bits := op.Set; bits != 0; bits &= bits - 1 {
			if at, ok := shown[bits&-bits]; !ok || op.Return < at {
				shown[bits&-bits] = op.Return
			}
		}
	}
	for _, op := range all {
		if op.Block != block {
			continue
		}
		end, isShown := op.Return, true
		if op.IsPush && end == 0 {
			end, isShown = shown[op.Set]
		}
		if isShown {
			ops = append(ops, porcupine.Operation{ClientId: op.Worker, Input: op, Call: int64(op.Call), Return: int64(end)})
		}
	}
	return ops
}

// TestLinearizable has the histories of blocks, as the workers saw them, judged by another
// program: each is one of a single register, unless updates were lost.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	last := uint64(400)
	if testing.Short() {
		last = 100
	}
	judged := 0
	for n := uint64(1); n <= last; n++ {
		w := sim.New(n, sim.Mutants{}, false)
		require.NoError(t, w.Run())
		for shard := range w.NumShards() {
			all, lost := w.History(shard)
			for block := 0; block < sim.NumBlocks && !lost; block++ {
				ops := operations(all, block)
				require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(register, ops, time.Minute),
					"seed %d, shard %d, block %d", n, shard, block)
				judged += len(ops)
			}
		}
	}
	t.Logf("%d operations", judged)
	require.Positive(t, judged)
}

// TestNotLinearizable has histories judged that are not: a worker that misses what it was
// told is applied, and two that see different orders.
func TestNotLinearizable(t *testing.T) {
	push := func(set uint64, call, end time.Duration) sim.Operation {
		return sim.Operation{IsPush: true, Set: set, Call: call, Return: end}
	}
	pull := func(set uint64, call, end time.Duration) sim.Operation {
		return sim.Operation{Set: set, Call: call, Return: end}
	}
	for name, c := range map[string]struct {
		ops  []sim.Operation
		want porcupine.CheckResult
	}{
		"in order":          {[]sim.Operation{push(1, 1, 2), pull(1, 3, 4)}, porcupine.Ok},
		"acknowledged lost": {[]sim.Operation{push(1, 1, 2), pull(0, 3, 4)}, porcupine.Illegal},
		"two orders":        {[]sim.Operation{push(1, 1, 9), push(2, 1, 9), pull(1, 3, 4), pull(2, 5, 6)}, porcupine.Illegal},
		"unanswered, shown": {[]sim.Operation{push(1, 1, 0), pull(1, 3, 4)}, porcupine.Ok},
		"shown, then not":   {[]sim.Operation{push(1, 1, 0), pull(1, 3, 4), pull(0, 5, 6)}, porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, porcupine.CheckOperationsTimeout(register, operations(c.ops, 0), math.MaxInt64))
		})
	}
}
