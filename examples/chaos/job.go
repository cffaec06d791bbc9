package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
)

const (
	startTimeout  = 60 * time.Second // for all processes and the first followers
	healTimeout   = 60 * time.Second // after a fault has ended
	finishTimeout = 60 * time.Second // for the steps that are under way, and the judgement
	tellAfter     = 5 * time.Second  // of waiting for health
	sweepTimeout  = 10 * time.Second
	statusTimeout = 2 * time.Second
)

// event is a fault that has happened.
type event struct {
	fault
	at       time.Duration // since the first one could
	recovery time.Duration
	healthy  time.Duration // until everything runs and every shard has its follower again
}

// outcome is what came of one training.
type outcome struct {
	events        []event
	steps         int
	acknowledged  int64
	lost, doubled int64
	accuracy      float64
	wall          time.Duration
	rounds        []time.Duration // of the probe, sorted
	joined        int             // workers, replacements included
	gone          string          // why a shard is lost with all its copies
}

// job is one training with everything that belongs to it. The part in this process is the
// director: it hands out the steps, keeps the accounts, and does the faults. Nothing is
// done to it, so that what it has counted can be relied on.
type job struct {
	settings
	plan        training.Plan
	train, test *mnist.Set
	out         io.Writer

	node   *actor.Node
	feed   *training.Feed
	fleet  *fleet
	admin  *ps.Admin
	client *ps.Client
	prober *prober
	folder string

	probing  sync.WaitGroup
	endProbe context.CancelFunc
}

// run trains. With a schedule, faults are done for the duration, and then the training
// ends; without one it does the steps of the plan.
func (j *job) run(ctx context.Context, faults *schedule) (o outcome, err error) {
	defer func() { err = errors.Join(err, j.close()) }()
	if err := j.start(ctx); err != nil {
		return o, err
	}
	began := time.Now()
	if faults != nil {
		o.events, err = j.disturb(ctx, faults)
		j.feed.Finish()
	}
	if err == nil {
		err = j.finish(ctx)
	}
	if lost := j.prober.isLost(); lost != nil {
		err, o.gone = nil, firstLine(lost) // the accounts tell how much that is
		fmt.Fprintf(j.out, "the training ends here: %s\n", o.gone)
	}
	if err != nil {
		return o, err
	}
	o.wall = time.Since(began)
	return o, j.judge(ctx, &o)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// start returns when the workers train and every shard has its follower.
func (j *job) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if j.folder, err = os.MkdirTemp("", "chaos-"); err != nil {
		return err
	}
	secret := rand.Text()
	if j.node, err = actor.Start(ctx, actor.Config{Name: directorNode, Secret: secret}); err != nil {
		return err
	}
	if j.feed, err = training.StartFeed(ctx, j.node, j.plan); err != nil {
		return err
	}
	if j.fleet, err = newFleet(j.settings, j.plan, j.folder, secret, j.node.Addr(), j.out); err != nil {
		return err
	}
	if err := j.node.AddPeer(controllerNode, j.fleet.roles[controller].Listen); err != nil {
		return err
	}
	var servers, workers []string
	for i := range j.NumServers {
		servers = append(servers, serverName(i))
	}
	for i := range j.NumWorkers {
		workers = append(workers, workerName(i))
	}
	if err := j.fleet.keep(ctx, append(servers, controller)...); err != nil {
		return fmt.Errorf("chaos: servers do not start: %w", err)
	}
	if j.admin, err = ps.NewAdmin(j.node, coordinator()); err != nil {
		return err
	}
	if j.client, err = ps.Dial(ctx, ps.ClientConfig{Node: j.node, Name: directorNode, Coordinator: coordinator()}); err != nil {
		return err
	}
	if err := training.Initialize(ctx, j.client, j.plan); err != nil {
		return err
	}
	if j.prober, err = newProber(ctx, j.admin, j.client); err != nil {
		return err
	}
	var probing context.Context
	probing, j.endProbe = context.WithCancel(context.Background())
	j.probing.Go(func() { j.prober.run(probing) })
	if err := j.fleet.keep(ctx, workers...); err != nil {
		return fmt.Errorf("chaos: workers do not start: %w", err)
	}
	return j.healthy(ctx)
}

// healthy returns when all processes run, all shards answer, and each has its follower.
func (j *job) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	var missing string
	began := time.Now()
	since, tell := began, began.Add(tellAfter) // when the servers were last seen incomplete
	err := training.Poll(ctx, func() bool {
		if j.prober.isLost() != nil {
			return true
		}
		if time.Now().After(tell) {
			fmt.Fprintf(j.out, "not healthy after %v: %s\n", time.Since(began).Round(time.Second), missing)
			tell = tell.Add(tellAfter)
		}
		asking, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		st, err := j.admin.Status(asking)
		up := 0
		for _, s := range st.Servers {
			if s.Up {
				up++
			}
		}
		switch workers := j.feed.Progress().Workers; {
		case err != nil:
			missing = err.Error()
		case up < j.NumServers:
			missing = fmt.Sprintf("%d of %d servers are up", up, j.NumServers)
		case !j.prober.since(since):
			missing = fmt.Sprintf("not all shards answer: %v", j.prober.last())
			return false
		case st.Exposed > 0:
			missing = fmt.Sprintf("%d shards have no follower", st.Exposed)
			return false
		case workers < j.NumWorkers:
			missing = fmt.Sprintf("%d of %d workers train", workers, j.NumWorkers)
			return false
		default:
			return true
		}
		since = time.Now()
		return false
	})
	if lost := j.prober.isLost(); lost != nil {
		return lost
	}
	if err != nil {
		return fmt.Errorf("chaos: not healthy after %v: %s: %w", healTimeout, missing, err)
	}
	return nil
}

// disturb does faults for the duration, one after the other, or with Overlap without
// waiting for anything, and returns them in the order of their beginning.
func (j *job) disturb(ctx context.Context, faults *schedule) (events []event, err error) {
	began := time.Now()
	var mu sync.Mutex
	busy := map[string]bool{}
	var running sync.WaitGroup
	failed := func() error {
		mu.Lock()
		defer mu.Unlock()
		return err
	}
	for time.Since(began) < j.Duration && failed() == nil && j.prober.isLost() == nil {
		x := faults.next()
		wait(ctx, x.pause)
		if ctx.Err() == nil && !j.Overlap {
			err = j.healthy(ctx) // a server that others starve may have lost a follower since
		}
		if ctx.Err() != nil || failed() != nil || j.prober.isLost() != nil {
			break
		}
		mu.Lock()
		taken := busy[x.target]
		busy[x.target] = true
		mu.Unlock()
		if taken {
			continue
		}
		one := func() {
			e, failure := j.inflict(ctx, x, began)
			mu.Lock()
			defer mu.Unlock()
			busy[x.target] = false
			events = append(events, e)
			err = errors.Join(err, failure)
		}
		if j.Overlap {
			running.Go(one)
		} else {
			one()
		}
	}
	running.Wait()
	if ctx.Err() != nil {
		return events, context.Cause(ctx)
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	if err == nil {
		err = j.healthy(ctx)
	}
	return events, err
}

// inflict does one fault, ends it, and returns when everything is as before.
func (j *job) inflict(ctx context.Context, x fault, began time.Time) (event, error) {
	at := time.Now()
	e := event{fault: x, at: at.Sub(began)}
	undo, err := j.fleet.inflict(ctx, x)
	if err != nil {
		return e, err
	}
	wait(ctx, x.hold)
	if err := undo(); err != nil {
		return e, err
	}
	ended := time.Now()
	if j.Overlap {
		err = training.Poll(ctx, func() bool { return j.prober.since(ended) || j.prober.isLost() != nil })
	} else {
		err = j.healthy(ctx)
	}
	until := time.Now()
	e.recovery, e.healthy = j.prober.recovery(at, until), until.Sub(at)
	if err != nil {
		return e, fmt.Errorf("chaos: after %s of %s for %v at %v: %w", x.kind, x.target, x.hold, e.at, err)
	}
	if j.prober.isLost() != nil {
		return e, nil
	}
	fmt.Fprintf(j.out, "%7.1f s  %-7s %-11s for %4d ms  recovered after %5d ms  healthy after %5d ms  step %d\n",
		e.at.Seconds(), x.kind, x.target, x.hold.Milliseconds(), e.recovery.Milliseconds(), e.healthy.Milliseconds(), j.feed.Progress().Step)
	return e, nil
}

// finish returns when all steps are done. No step in a minute is too few.
func (j *job) finish(ctx context.Context) error {
	last, since := -1, time.Now()
	var stalled error
	err := training.Poll(ctx, func() bool {
		p := j.feed.Progress()
		if p.Step != last {
			last, since = p.Step, time.Now()
		}
		if time.Since(since) > finishTimeout {
			stalled = fmt.Errorf("chaos: no step after %d of %d for %v", p.Step, p.Steps, finishTimeout)
		}
		return p.Done || stalled != nil || j.prober.isLost() != nil
	})
	return errors.Join(err, stalled)
}

// judge compares what is in the parameters with what was counted.
func (j *job) judge(ctx context.Context, o *outcome) (err error) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	accounts := j.feed.Accounts()
	o.steps, o.joined, o.rounds = j.feed.Progress().Step, len(accounts), j.prober.took()
	for _, a := range accounts {
		o.acknowledged += int64(a.Acknowledged)
	}
	if o.lost, o.doubled, err = training.Audit(ctx, j.client, j.plan, accounts); err != nil {
		return err
	}
	if o.accuracy, err = training.Accuracy(ctx, j.client, j.train, j.test); errors.Is(err, ps.ErrShardLost) {
		return nil // there is no model to speak of
	}
	return err
}

// sweep deletes what the job has left in etcd.
func (j *job) sweep() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	kv, err := openEtcd(ctx, j.Etcd, etcdRoot(j.folder))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kv.Close()) }()
	entries, err := kv.List(ctx, "")
	for _, e := range entries {
		if _, err := kv.CompareAndSwap(ctx, e.Key, e.Revision, nil); err != nil {
			return fmt.Errorf("chaos: delete key %q: %w", e.Key, err)
		}
	}
	return err
}

// close ends everything.
func (j *job) close() error {
	var errs []error
	if j.endProbe != nil {
		j.endProbe()
		j.probing.Wait()
	}
	if j.client != nil {
		_ = j.client.Close() // to be forgotten is all that it asks for
	}
	if j.fleet != nil {
		errs = append(errs, j.fleet.close())
	}
	if j.feed != nil {
		errs = append(errs, j.feed.Close())
	}
	if j.node != nil {
		errs = append(errs, j.node.Close())
	}
	if j.fleet != nil && j.Etcd != "" {
		errs = append(errs, j.sweep())
	}
	if j.folder != "" {
		errs = append(errs, os.RemoveAll(j.folder))
	}
	return errors.Join(errs...)
}
