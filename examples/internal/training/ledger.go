package training

import (
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/examples/internal/mnist"
)

// Counts has one number for each probe.
type Counts [numProbes]int64

// Account is what is known of one worker.
type Account struct {
	Slot int
	// Started counts the steps handed out, Confirmed those that the worker said
	// all of whose pushes were acknowledged, by probe. A worker that dies in the
	// middle of a step has one more started than confirmed.
	Started, Confirmed Counts
	// Sent and Acknowledged are the worker's own counters of pushes to single
	// shards, as of its last confirmation.
	Sent, Acknowledged uint64
}

// verdict is the answer to a worker that asks for work.
type verdict uint8

const (
	train verdict = iota // do the step
	wait                 // nothing to do now, ask again
	stop                 // all is done
)

const noStep = -1

// ledger hands out the steps of a plan and keeps the accounts of the workers. It is
// plain data: no clock, no goroutine.
type ledger struct {
	plan      Plan
	sampler   *mnist.Sampler
	steps     int   // to be done
	next      int   // the first step that was never handed out
	returned  []int // steps of workers that are gone
	accounts  []Account
	doing     []int // by slot, noStep if none
	gone      []bool
	confirmed int
	samples   int64
	loss      float64 // moving average
}

func newLedger(p Plan) (*ledger, error) {
	s, err := p.sampler()
	if err != nil {
		return nil, err
	}
	steps := s.NumSteps()
	if p.MaxSteps > 0 {
		steps = min(steps, p.MaxSteps)
	}
	return &ledger{plan: p, sampler: s, steps: steps}, nil
}

func (l *ledger) join(name string) (slot int, err error) {
	if most := l.plan.slots(); len(l.accounts) >= most {
		return 0, fmt.Errorf("training: worker %q is refused: %d workers have joined, at most %d", name, len(l.accounts), most)
	}
	slot = len(l.accounts)
	l.accounts = append(l.accounts, Account{Slot: slot})
	l.doing = append(l.doing, noStep)
	l.gone = append(l.gone, false)
	return slot, nil
}

// confirm notes that the worker's step is done.
func (l *ledger) confirm(m nextRequest) {
	a := &l.accounts[m.Slot]
	a.Sent, a.Acknowledged = max(a.Sent, m.Sent), max(a.Acknowledged, m.Acknowledged)
	if m.Done == noStep || l.doing[m.Slot] != m.Done {
		return
	}
	l.doing[m.Slot] = noStep
	a.Confirmed[probeOf(m.Done)]++
	if l.gone[m.Slot] {
		return // it was taken for dead, and the step went to another worker
	}
	l.confirmed++
	l.samples += int64(m.Samples)
	const memory = 0.95
	if l.loss == 0 {
		l.loss = float64(m.Loss)
	}
	l.loss = memory*l.loss + (1-memory)*float64(m.Loss)
}

// assign finds work for a worker.
func (l *ledger) assign(slot int) (int, verdict) {
	switch {
	case l.confirmed >= l.steps || l.gone[slot]:
		return noStep, stop
	case len(l.returned) == 0 && l.next >= l.steps:
		return noStep, wait // for the others: one may die
	}
	step := l.next
	if len(l.returned) > 0 {
		step = l.returned[0]
	}
	busy := 0
	for _, s := range l.doing {
		if s != noStep {
			busy++
		}
	}
	if busy >= l.plan.workersAt(l.sampler.Epoch(step)) {
		return noStep, wait
	}
	if len(l.returned) > 0 {
		l.returned = slices.Delete(l.returned, 0, 1)
	} else {
		l.next++
	}
	l.doing[slot] = step
	l.accounts[slot].Started[probeOf(step)]++
	return step, train
}

// leave takes back the step of a worker that is gone.
func (l *ledger) leave(slot int) {
	if l.gone[slot] {
		return
	}
	l.gone[slot] = true
	if step := l.doing[slot]; step != noStep {
		l.doing[slot] = noStep
		l.returned = append(l.returned, step)
	}
}

// finish hands out no step that was not handed out before.
func (l *ledger) finish() { l.steps = l.next }

func (l *ledger) progress() Progress {
	done := l.confirmed >= l.steps
	p := Progress{
		Step: l.confirmed, Steps: l.steps, Epochs: l.sampler.NumEpochs(), Loss: l.loss,
		Samples: l.samples, Done: done,
	}
	p.Epoch = min(l.sampler.Epoch(l.confirmed)+1, p.Epochs)
	for _, gone := range l.gone {
		if !gone {
			p.Workers++
		}
	}
	return p
}
