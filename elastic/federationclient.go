package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/federation"
)

// FederationClient asks the Home of a federation, whichever of several it is. Its methods may be
// called from any goroutine, and end with their contexts, or after actor.DefaultCallTimeout without a
// deadline; until then they ask again. Errors wrap those of package federation, or ErrNotHome and the
// actor's when no Home has answered in time.
type FederationClient struct {
	node  *actor.Node
	homes []actor.Ref
}

const (
	homeAttempt = time.Second           // how long one Home is waited for
	homePause   = 20 * time.Millisecond // when all have been asked
)

// NewFederationClient returns a client of those that may be Home, as Home.Ref tells them, on a node
// that is connected with theirs.
func NewFederationClient(node *actor.Node, homes ...actor.Ref) (*FederationClient, error) {
	if len(homes) < 1 || len(homes) > maxRefsToHomes {
		return nil, fmt.Errorf("elastic: %d homes: want 1 to %d", len(homes), maxRefsToHomes)
	}
	if err := registerFederation(node); err != nil {
		return nil, fmt.Errorf("elastic: client of a federation: %w", err)
	}
	return &FederationClient{node, homes}, nil
}

// Submit has a job run on one of the sites. When it returns nil the job will, whoever dies. The same
// job again is no error as long as it is known; one that is over begins anew. The error wraps
// federation.ErrExists when another job has the name, or says what is wrong with this one.
func (c *FederationClient) Submit(ctx context.Context, j federation.Job) error {
	_, err := askHome[any](ctx, c, submitRequest{j})
	return err
}

// Cancel ends a job. One that is not known is no error, for it may have been ended before.
func (c *FederationClient) Cancel(ctx context.Context, job string) error {
	_, err := askHome[any](ctx, c, cancelRequest{job})
	return err
}

// Where says on which site a job may be running, empty if on none. The error wraps
// federation.ErrUnknown when it is over.
func (c *FederationClient) Where(ctx context.Context, job string) (string, error) {
	return askHome[string](ctx, c, whereRequest{job})
}

// askHome asks one after the other until one answers as Home.
func askHome[R any](ctx context.Context, c *FederationClient, msg any) (R, error) {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, actor.DefaultCallTimeout)
		defer cancel()
		ctx = limited
	}
	var last error
	for {
		for _, home := range c.homes {
			attempt, cancel := context.WithTimeout(ctx, homeAttempt)
			r, err := actor.Call[R](attempt, c.node, home, msg)
			cancel()
			if err == nil || !errors.Is(err, ErrNotHome) && !actor.Retryable(err) {
				return r, err
			}
			if last == nil || !errors.Is(err, context.DeadlineExceeded) { // that is known at the end
				last = err
			}
		}
		select {
		case <-ctx.Done():
			var zero R
			return zero, fmt.Errorf("elastic: no home of the federation has answered: %w", errors.Join(ctx.Err(), last))
		case <-time.After(homePause):
		}
	}
}
