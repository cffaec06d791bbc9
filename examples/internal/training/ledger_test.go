package training

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
)

func newTestLedger(t *testing.T, phases ...Phase) *ledger {
	t.Helper()
	l, err := newLedger(Plan{Phases: phases, NumImages: 20})
	require.NoError(t, err)
	return l
}

// finish confirms what a worker is doing and gives it the next step.
func finish(l *ledger, slot int) (int, verdict) {
	l.confirm(nextRequest{Slot: slot, Done: l.doing[slot], Samples: 10, Loss: 1})
	return l.assign(slot)
}

func joined(t *testing.T, l *ledger, n int) {
	t.Helper()
	for i := range n {
		slot, err := l.join("w")
		require.NoError(t, err)
		require.Equal(t, i, slot)
	}
}

func TestEachStepIsDoneOnce(t *testing.T) {
	l := newTestLedger(t, Phase{Epochs: 3, BatchSize: 10}) // 6 steps
	joined(t, l, 2)
	var steps []int
	for turn := 0; ; turn++ {
		step, v := finish(l, turn%2)
		if v == stop {
			break
		}
		if v == train {
			steps = append(steps, step)
		}
	}
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, steps)
	p := l.progress()
	require.True(t, p.Done)
	require.Equal(t, 6, p.Step)
	require.EqualValues(t, 60, p.Samples)
	var confirmed int64
	for _, a := range l.accounts {
		require.Equal(t, a.Started, a.Confirmed)
		for _, n := range a.Confirmed {
			confirmed += n
		}
	}
	require.EqualValues(t, 6, confirmed)
}

func TestStepOfADeadWorkerGoesToAnother(t *testing.T) {
	l := newTestLedger(t, Phase{Epochs: 1, BatchSize: 10}) // 2 steps
	joined(t, l, 2)
	first, _ := l.assign(0)
	_, _ = l.assign(1)
	step, v := finish(l, 1)
	require.Equal(t, wait, v, "0 may die")
	require.Equal(t, noStep, step)
	l.leave(0)
	l.leave(0)
	step, v = l.assign(1)
	require.Equal(t, train, v)
	require.Equal(t, first, step)
	require.Equal(t, 1, l.progress().Workers)

	// The other one was not dead: what it did is in its account, not in the progress.
	l.confirm(nextRequest{Slot: 0, Done: first})
	require.Equal(t, 1, l.confirmed)
	_, v = l.assign(0)
	require.Equal(t, stop, v)
	_, v = finish(l, 1)
	require.Equal(t, stop, v)
	require.True(t, l.progress().Done)
}

func TestPhaseWithOneWorkerKeepsTheOthersWaiting(t *testing.T) {
	l := newTestLedger(t, Phase{Epochs: 1, BatchSize: 10}, Phase{Epochs: 2, BatchSize: 20, Workers: 1}) // 2 and 2 steps
	joined(t, l, 3)
	_, v := l.assign(0)
	require.Equal(t, train, v)
	_, v = l.assign(1)
	require.Equal(t, train, v)
	_, v = l.assign(2)
	require.Equal(t, wait, v)
	_, v = finish(l, 0)
	require.Equal(t, wait, v, "1 is still at it")
	step, v := finish(l, 1)
	require.Equal(t, train, v)
	require.Equal(t, 2, step)
	_, v = l.assign(0)
	require.Equal(t, wait, v)
	l.leave(1)
	step, v = l.assign(0)
	require.Equal(t, train, v, "the one that trained is gone")
	require.Equal(t, 2, step)
}

func TestConfirmingTwiceCountsOnce(t *testing.T) {
	l := newTestLedger(t, Phase{Epochs: 3, BatchSize: 10})
	joined(t, l, 1)
	step, _ := l.assign(0)
	for range 2 {
		l.confirm(nextRequest{Slot: 0, Done: step})
	}
	require.Equal(t, 1, l.confirmed)
}

func TestTooManyWorkers(t *testing.T) {
	l := newTestLedger(t, Phase{Epochs: 1, BatchSize: 10})
	joined(t, l, MaxWorkers)
	_, err := l.join("one-more")
	require.ErrorContains(t, err, `"one-more" is refused: 16 workers have joined, at most 16`)
}

// A training that is ended early does what was handed out, also to workers that die.
func TestFinishEarly(t *testing.T) {
	l := newTestLedger(t, Phase{Epochs: 3, BatchSize: 10})
	joined(t, l, 2)
	first, _ := l.assign(0)
	_, _ = l.assign(1)
	l.finish()
	_, v := finish(l, 1)
	require.Equal(t, wait, v)
	require.False(t, l.progress().Done)
	l.leave(0)
	step, v := l.assign(1)
	require.Equal(t, train, v)
	require.Equal(t, first, step)
	_, v = finish(l, 1)
	require.Equal(t, stop, v)
	require.Equal(t, 2, l.progress().Steps)
	require.True(t, l.progress().Done)
}

func TestPlanOfSoManySteps(t *testing.T) {
	l, err := newLedger(Plan{Phases: []Phase{{Epochs: 3, BatchSize: 10}}, NumImages: 20, MaxSteps: 1, Slots: 1})
	require.NoError(t, err)
	joined(t, l, 1)
	_, err = l.join("one-more")
	require.ErrorContains(t, err, "1 workers have joined, at most 1")
	_, v := l.assign(0)
	require.Equal(t, train, v)
	_, v = finish(l, 0)
	require.Equal(t, stop, v)
	_, err = newLedger(Plan{Phases: []Phase{{Epochs: 1, BatchSize: 1}}, NumImages: 1, MaxSteps: -1, Slots: 5000})
	require.ErrorContains(t, err, "slots is 5000, want 0 to 4096")
	require.ErrorContains(t, err, "most steps is -1, want 0 or more")
}

func TestPlanFaults(t *testing.T) {
	_, err := newLedger(Plan{NumImages: 10, Phases: []Phase{{Epochs: 0, BatchSize: 1}, {Epochs: 1, BatchSize: 1, Workers: 17}}})
	require.ErrorContains(t, err, "number of epochs of phase 0 is 0")
	require.ErrorContains(t, err, "workers of phase 1 is 17, want 0 to 16")
}

func TestAuditFindsWhatIsMissingAndWhatIsTooMuch(t *testing.T) {
	accounts := []Account{{Slot: 0}, {Slot: 1}}
	accounts[0].Confirmed[3], accounts[0].Started[3] = 5, 5
	accounts[1].Confirmed[3], accounts[1].Started[3] = 2, 3 // died in the middle of one
	for name, tc := range map[string]struct {
		row0, row1, shared float32
		lost, doubled      int64
	}{
		"the last one is there":     {5, 3, 8, 0, 0},
		"the last one is not there": {5, 2, 7, 0, 0},
		"one lost":                  {4, 2, 7, 1, 0},
		"one doubled":               {6, 3, 8, 0, 1},
		"doubled in the shared row": {5, 3, 10, 0, 2},
		"lost in the shared row":    {5, 2, 6, 1, 0},
		"both":                      {3, 4, 8, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			values := make([]float32, (MaxWorkers+1)*probeElems)
			for row, v := range map[int]float32{0: tc.row0, 1: tc.row1, MaxWorkers: tc.shared} {
				for i := range probeElems {
					values[row*probeElems+i] = v
				}
			}
			lost, doubled := auditProbe(3, values, accounts)
			require.Equal(t, tc.lost, lost, "lost")
			require.Equal(t, tc.doubled, doubled, "doubled")
		})
	}
	values := slices.Repeat([]float32{0}, (MaxWorkers+1)*probeElems)
	values[5*probeElems+7] = 1
	lost, doubled := auditProbe(0, values, nil)
	require.Zero(t, lost)
	require.EqualValues(t, 1, doubled, "one element of a row that nobody has")
}

func TestJobHasAProbeUnderSGD(t *testing.T) {
	job, err := Plan{Optimizer: ps.Adam(0.001)}.Job()
	require.NoError(t, err)
	require.NoError(t, job.Model.Validate())
	require.Len(t, job.Optimizers, numProbes)
	require.Greater(t, stepBytes(), int64(2*4*203_530))
}
