package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	probePause = 20 * time.Millisecond
	// probeTimeout bounds one push and one pull. A fault that lasts longer has failed.
	probeTimeout = 60 * time.Second
	// lateRound is from when on a round counts as disturbed. Without faults a round takes
	// some milliseconds, and some ten when the workers have all processors.
	lateRound = 250 * time.Millisecond
)

// prober pushes to and pulls from every shard again and again, as a client of the job that
// has no part in the training. What it pushes is zero, which leaves parameters and state
// of Adagrad and SGD as they are.
type prober struct {
	client *ps.Client
	pieces []piece

	mu     sync.Mutex
	rounds []round
	lost   error // why a shard cannot come back
}

// piece is the rows of a layer that are one shard.
type piece struct {
	layer string
	row   int
	elems int
}

// round is one push to and one pull from every shard.
type round struct {
	began, ended time.Time
	err          error
}

func newProber(ctx context.Context, admin *ps.Admin, client *ps.Client) (*prober, error) {
	shards, err := admin.Shards(ctx)
	if err != nil {
		return nil, err
	}
	p := &prober{client: client}
	layers := client.Model().Layers
	for _, s := range shards {
		p.pieces = append(p.pieces, pieceOf(layers[s.Range.Layer], s.Range))
	}
	return p, nil
}

func pieceOf(l shard.Layer, r shard.Range) piece {
	return piece{layer: l.Name, row: int(r.Begin) / l.RowElems(), elems: int(r.Elems())}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) {
	values := make([][2][]float32, len(p.pieces))
	for i, x := range p.pieces {
		values[i] = [2][]float32{make([]float32, x.elems), make([]float32, x.elems)}
	}
	for ctx.Err() == nil {
		r := round{began: time.Now()}
		r.err = p.probe(ctx, values)
		r.ended = time.Now()
		if ctx.Err() == nil {
			p.mu.Lock()
			p.rounds = append(p.rounds, r)
			if errors.Is(r.err, ps.ErrShardLost) {
				p.lost = r.err
			}
			p.mu.Unlock()
		}
		wait(ctx, probePause)
	}
}

func (p *prober) probe(ctx context.Context, values [][2][]float32) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	errs := make([]error, len(p.pieces))
	var all sync.WaitGroup
	for i, x := range p.pieces {
		all.Go(func() {
			errs[i] = p.client.PushRange(ctx, x.layer, x.row, values[i][0])
			if errs[i] == nil {
				errs[i] = p.client.PullRange(ctx, x.layer, x.row, values[i][1])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// isLost returns the error of a shard that is gone for good.
func (p *prober) isLost() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// last returns the error of the last round, nil if it has succeeded.
func (p *prober) last() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rounds) == 0 {
		return nil
	}
	return p.rounds[len(p.rounds)-1].err
}

// since reports whether a round that began after t has succeeded.
func (p *prober) since(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Backward(p.rounds) {
		if r.began.Before(t) {
			return false
		}
		if r.err == nil {
			return true
		}
	}
	return false
}

// recovery is the time from a fault until pushes and pulls of all shards have succeeded
// and were not disturbed any more: the end of the last round that was late or failed, or
// of the first one after the fault if none was.
func (p *prober) recovery(fault, until time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := fault
	for _, r := range p.rounds {
		disturbed := r.err != nil || r.ended.Sub(r.began) > lateRound
		first := end.Equal(fault) && !r.began.Before(fault)
		if r.ended.After(fault) && r.began.Before(until) && (disturbed || first) {
			end = r.ended
		}
	}
	return end.Sub(fault)
}

// took returns the durations of all rounds, sorted.
func (p *prober) took() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []time.Duration
	for _, r := range p.rounds {
		all = append(all, r.ended.Sub(r.began))
	}
	slices.Sort(all)
	return all
}

// quantile returns the value below which a share of sorted values lies; zero for none.
func quantile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
