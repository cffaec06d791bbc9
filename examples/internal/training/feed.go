package training

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
)

// FeedProcess is the name of the feed's process on its node.
const FeedProcess = "training/feed"

// Messages of the feed.
type (
	joinRequest struct {
		Worker actor.Ref // watched: its end gives its step back
		Name   string
	}
	joinReply struct {
		Slot int
		Plan Plan
	}
	// nextRequest confirms a step, if Done is one, and asks for another.
	nextRequest struct {
		Slot               int
		Done               int
		Loss               float32
		Samples            int
		Sent, Acknowledged uint64
		Leave              bool // no other step is wanted
	}
	nextReply struct {
		Step    int
		Verdict verdict
	}
	// askReady is answered with itself.
	askReady struct{}
)

func register(n *actor.Node) error {
	return errors.Join(
		n.Register("training.join", joinRequest{}), n.Register("training.joined", joinReply{}),
		n.Register("training.next", nextRequest{}), n.Register("training.step", nextReply{}),
		n.Register("training.ready", askReady{}),
	)
}

// Progress is how far the training is.
type Progress struct {
	Step, Steps   int // confirmed by all workers together, and to be done
	Epoch, Epochs int // from 1
	Loss          float64
	Samples       int64
	Workers       int // that have joined and are not gone
	Done          bool
}

// Feed hands out the steps of a plan to workers and keeps their accounts.
type Feed struct {
	node *actor.Node
	ref  actor.Ref

	mu     sync.Mutex
	ledger *ledger
	slots  map[actor.Ref]int
}

// StartFeed starts the feed of a plan on a node. The error names every fault of the
// plan, or wraps the actor's.
func StartFeed(ctx context.Context, n *actor.Node, p Plan) (*Feed, error) {
	l, err := newLedger(p)
	if err != nil {
		return nil, err
	}
	if err := register(n); err != nil {
		return nil, err
	}
	f := &Feed{node: n, ledger: l, slots: map[actor.Ref]int{}}
	if f.ref, err = n.Spawn(ctx, FeedProcess, actor.ActorFunc(f.receive), actor.Options{}); err != nil {
		return nil, fmt.Errorf("training: start feed: %w", err)
	}
	return f, nil
}

// AwaitFeed returns when the feed answers: the job is there to be joined. The error
// wraps the last one of the feed's node when ctx ends first.
func AwaitFeed(ctx context.Context, n *actor.Node, feed actor.Ref) error {
	if err := register(n); err != nil {
		return err
	}
	for {
		_, err := n.Call(ctx, feed, askReady{})
		if err == nil {
			return nil
		}
		if pauseErr := pause(ctx, askAgain); pauseErr != nil {
			return errors.Join(pauseErr, err)
		}
	}
}

// Ref addresses the feed.
func (f *Feed) Ref() actor.Ref { return f.ref }

// Progress returns how far the training is. It does not block.
func (f *Feed) Progress() Progress {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ledger.progress()
}

// Accounts returns what is known of each worker that ever joined, by slot.
func (f *Feed) Accounts() []Account {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ledger.accounts)
}

// Finish lets the training end early: the steps that were handed out are done, and no
// other ones.
func (f *Feed) Finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger.finish()
}

// Close ends the feed. It waits at most two seconds.
func (f *Feed) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := f.node.Stop(ctx, f.ref)
	if err != nil && !errors.Is(err, actor.ErrNoProcess) && !errors.Is(err, actor.ErrClosed) {
		return fmt.Errorf("training: stop feed: %w", err)
	}
	return nil
}

func (f *Feed) receive(c *actor.Context, msg any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m := msg.(type) {
	case joinRequest:
		f.join(c, m)
	case nextRequest:
		f.next(c, m)
	case askReady:
		c.Reply(m)
	case actor.Down:
		if slot, ok := f.slots[m.Ref]; ok {
			f.ledger.leave(slot)
		}
	}
	return nil
}

func (f *Feed) join(c *actor.Context, m joinRequest) {
	req := c.Request()
	if req == nil {
		return
	}
	slot, err := f.ledger.join(m.Name)
	if err != nil {
		req.Fail(err)
		return
	}
	f.slots[m.Worker] = slot
	if err := c.Monitor(m.Worker); err != nil {
		f.ledger.leave(slot)
		req.Fail(err)
		return
	}
	req.Reply(joinReply{Slot: slot, Plan: f.ledger.plan})
}

func (f *Feed) next(c *actor.Context, m nextRequest) {
	req := c.Request()
	if req == nil {
		return
	}
	if m.Slot < 0 || m.Slot >= len(f.ledger.accounts) {
		req.Fail(fmt.Errorf("training: slot is %d, want 0 to %d", m.Slot, len(f.ledger.accounts)-1))
		return
	}
	f.ledger.confirm(m)
	reply := nextReply{Step: noStep, Verdict: stop}
	if m.Leave {
		f.ledger.leave(m.Slot)
	} else {
		reply.Step, reply.Verdict = f.ledger.assign(m.Slot)
	}
	req.Reply(reply)
}
