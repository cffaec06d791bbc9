package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/ps"
)

const (
	// numPushers is how many workers push while a shard moves.
	numPushers = 4
	// pushedBytes is the size of their pushes.
	pushedBytes = 64 * kib
	// thinkTime is the time from the end of a push to the next one, which stands for
	// the computation of a gradient: without it the workers would take all that the
	// machine has, and a move could only be paid for by them.
	thinkTime = time.Millisecond
	// witnessPause is the same for the witness.
	witnessPause = 250 * time.Microsecond
)

// traffic is workers that push to the shard that moves and to the others, the two
// independently of each other, and a witness.
type traffic struct {
	witness witness
	pushes  atomic.Int64 // to the other shards
	cancel  context.CancelCauseFunc
	ctx     context.Context
	running sync.WaitGroup
	leave   func()
}

// startTraffic starts the workers. stop must be called if there is no error.
func (d *deployment) startTraffic(ctx context.Context) (*traffic, error) {
	workers, leave, err := d.newWorkers(ctx, numPushers+1)
	if err != nil {
		leave()
		return nil, err
	}
	t := &traffic{leave: leave}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	rows := d.model.Layers[0].Rows()
	for i, w := range workers[:numPushers] {
		t.push(w, movedLayer, rows, i, thinkTime, pushedBytes, nil)
		t.push(w, otherLayer(i), mib/rowBytes, 0, thinkTime, pushedBytes, func() { t.pushes.Add(1) })
	}
	t.witness.last = time.Now()
	t.push(workers[numPushers], movedLayer, rows, 0, witnessPause, rowBytes, t.witness.acknowledged)
	return t, nil
}

// push begins a loop of pushes to pieces of a layer of so many rows, one after the
// other, with a pause between them. An error ends all of the traffic.
func (t *traffic) push(w *ps.Worker, layer string, rows, first int, pause time.Duration, bytes int64, done func()) {
	grad := gradient(bytes)
	step := int(bytes / rowBytes)
	t.running.Go(func() {
		for at := first * step % rows; ; at = (at + step) % rows {
			if err := w.PushRange(t.ctx, layer, at, grad); err != nil {
				t.cancel(fmt.Errorf("push to %s while a shard moves: %w", layer, err))
				return
			}
			if done != nil {
				done()
			}
			if sleep(t.ctx, pause) != nil {
				return
			}
		}
	})
}

// others runs f and returns the pushes per second to other shards meanwhile.
func (t *traffic) others(ctx context.Context, f func() error) (float64, error) {
	before, start := t.pushes.Load(), time.Now()
	err := f()
	rate := float64(t.pushes.Load()-before) / time.Since(start).Seconds()
	if t.ctx.Err() != nil && ctx.Err() == nil {
		err = errors.Join(context.Cause(t.ctx), err)
	}
	return rate, err
}

// stop ends the traffic and waits for it.
func (t *traffic) stop() {
	t.cancel(nil)
	t.running.Wait()
	t.leave()
}

// witness notes the longest time between two acknowledgements.
type witness struct {
	mu    sync.Mutex
	last  time.Time
	most  time.Duration
	heard chan struct{} // closed at the next acknowledgement, nil if nobody waits
}

func (w *witness) acknowledged() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.most = max(w.most, now.Sub(w.last))
	w.last = now
	if w.heard != nil {
		close(w.heard)
		w.heard = nil
	}
}

// reset begins anew.
func (w *witness) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = 0
}

// longest waits for the next acknowledgement and returns the longest time between two
// since reset.
func (w *witness) longest(ctx context.Context) (time.Duration, error) {
	w.mu.Lock()
	if w.heard == nil {
		w.heard = make(chan struct{})
	}
	heard := w.heard
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	select {
	case <-heard:
	case <-ctx.Done():
		return 0, fmt.Errorf("bench: no acknowledgement after a move: %w", ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.most, nil
}

// sleep waits, or returns why ctx ended first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
