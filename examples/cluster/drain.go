package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	drainTimeout = 60 * time.Second
	drainPoll    = 100 * time.Millisecond
)

// leaving is a server that was asked to stop.
type leaving struct {
	id    shard.ServerID
	admin *ps.Admin
	out   io.Writer
}

// leave marks a server as draining and returns when the controller has moved its
// shards away and has removed it. It returns at once if the server has none, as the
// controller's own servers when they are stopped, or if the controller is gone.
func leave(node *actor.Node, s settings, w *watch, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	go func() {
		select {
		case <-w.gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	admin, err := ps.NewAdmin(node, w.of)
	if err == nil {
		l := leaving{id: shard.ServerID(s.id), admin: admin, out: out}
		err = l.drain(ctx)
	}
	if w.isGone() || errors.Is(err, actor.ErrNoProcess) {
		return nil
	}
	if err != nil {
		err = fmt.Errorf("cluster: server %q stops before it is drained: %w", s.id, err)
		fmt.Fprintln(out, err) // main says only that it was interrupted
	}
	return err
}

// drain returns when the server owns no shard.
func (l *leaving) drain(ctx context.Context) error {
	toMove := 0
	for {
		status, found, err := l.status(ctx)
		if err != nil {
			return err
		}
		if !found || status.Owned == 0 && toMove == 0 {
			if toMove > 0 {
				fmt.Fprintf(l.out, "%s: drained\n", l.id)
			}
			return nil
		}
		if toMove == 0 {
			toMove = status.Owned
			fmt.Fprintf(l.out, "%s: draining, %d shards to move\n", l.id, toMove)
		}
		if !status.Draining { // growth takes the mark away
			if err := l.admin.Drain(ctx, l.id, true); err != nil {
				return err
			}
		}
		timer := time.NewTimer(drainPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if status.Owned == 0 {
				return nil // only the controller does not know yet
			}
			return fmt.Errorf("%d of %d shards are left: %w", status.Owned, toMove, ctx.Err())
		}
	}
}

// status returns what the coordinator knows of the server, if anything.
func (l *leaving) status(ctx context.Context) (ps.ServerStatus, bool, error) {
	status, err := l.admin.Status(ctx)
	if err != nil {
		return ps.ServerStatus{}, false, err
	}
	for _, s := range status.Servers {
		if s.ID == l.id {
			return s, true, nil
		}
	}
	return ps.ServerStatus{}, false, nil
}
