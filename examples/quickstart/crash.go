package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/training"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	crashAt      = 0.5 // share of the steps
	crashTimeout = 20 * time.Second
)

// crash is the end of a server in the middle of the training, without any warning. Within
// one process that is to close it while it owns shards: its memory is freed and its
// connections end, and nothing is moved, handed over or told before. What the others see
// is what they see of a process that was killed.
type crash struct {
	node     *actor.Node
	provider *elastic.InProcess
	out      io.Writer

	killed, takenOver int
	recovery          time.Duration
}

// begin lets the crash happen when it is time, and returns a function that waits until it
// is over. It ends the wait for it if the training has ended before.
func (c *crash) begin(ctx context.Context, coordinator actor.Ref, progress func() training.Progress) (end func() error) {
	ctx, cancel := context.WithCancel(ctx)
	happened := make(chan error, 1)
	go func() {
		err := training.Poll(ctx, func() bool {
			p := progress()
			return float64(p.Step) >= crashAt*float64(p.Steps)
		})
		if err != nil {
			happened <- nil // the training has failed, and says why
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), crashTimeout)
		defer cancel()
		happened <- c.happen(ctx, coordinator)
	}()
	return func() error {
		cancel()
		return <-happened
	}
}

// happen kills the server with the most shards, when each of them has its follower, and
// measures how long they are away.
func (c *crash) happen(ctx context.Context, coordinator actor.Ref) error {
	admin, err := ps.NewAdmin(c.node, coordinator)
	if err != nil {
		return err
	}
	client, err := ps.Dial(ctx, ps.ClientConfig{Node: c.node, Name: "crash", Coordinator: coordinator})
	if err != nil {
		return err
	}
	defer client.Close()
	var victim ps.ServerStatus
	err = training.Poll(ctx, func() bool {
		victim, err = choose(ctx, admin)
		return err != nil || victim.Owned > 0
	})
	if err != nil {
		return fmt.Errorf("quickstart: choose a server to kill: %w", err)
	}
	began := time.Now()
	if err := c.provider.Stop(ctx, victim.ID); err != nil {
		return err
	}
	for _, l := range client.Model().Layers {
		if err := client.Pull(ctx, l.Name, make([]float32, l.Elems())); err != nil {
			return fmt.Errorf("quickstart: after server %q was killed: %w", victim.ID, err)
		}
	}
	c.killed, c.recovery = 1, time.Since(began)
	if c.takenOver, err = promoted(ctx, admin, victim.ID); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "server %s was killed; its %d shards were taken over by their followers, all layers could be read after %v\n",
		victim.ID, c.takenOver, c.recovery.Round(time.Millisecond))
	return nil
}

// choose returns the server that owns most, or one that owns nothing while a crash would
// lose something.
func choose(ctx context.Context, admin *ps.Admin) (victim ps.ServerStatus, err error) {
	st, err := admin.Status(ctx)
	if err != nil || st.Exposed > 0 {
		return victim, err
	}
	up := 0
	for _, s := range st.Servers {
		if !s.Up {
			continue
		}
		up++
		if s.Owned > victim.Owned {
			victim = s
		}
	}
	if up < 2 {
		return ps.ServerStatus{}, nil
	}
	return victim, nil
}

// promoted is how many shards of a server that is gone were given to their followers.
func promoted(ctx context.Context, admin *ps.Admin, id shard.ServerID) (n int, err error) {
	pollErr := training.Poll(ctx, func() bool {
		var st ps.Status
		if st, err = admin.Status(ctx); err != nil {
			return true
		}
		for _, f := range st.Failovers {
			if f.Server == id {
				n = f.Promoted
				return true
			}
		}
		return false
	})
	if err == nil {
		err = pollErr
	}
	return n, err
}
