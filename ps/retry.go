package ps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// verdict says what the answer of a call means: final with or without an error, or to
// be sent again, at once or (with an error) later.
func (c *Client) verdict(k *call) (final bool, err error) {
	switch {
	case k.err == nil && k.out.code == codeOK:
		return true, nil
	case k.err == nil:
		err = c.judge(k)
		final = err != nil && !Retryable(err)
	case errors.Is(k.err, ErrShardLost): // the first time the routes may be old
		err, final = k.err, k.attempts > 0
	default:
		err = k.err
		if k.ctx.Err() != nil {
			err, final = context.Cause(k.ctx), true
			if k.cause == nil || !errors.Is(k.err, err) { // else what it has met before says more
				k.cause = k.err
			}
		} else {
			c.seek(*k.server)
		}
	}
	if !final {
		k.attempts++
	}
	if err != nil && !final {
		k.cause = err
	}
	k.later = err != nil
	return final, err
}

// because adds the last cause that a call met to the error that ends it.
func (k *call) because(err error) error {
	if k.cause == nil || errors.Is(err, k.cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, k.cause)
}

// judge turns an answer other than OK into what to do: nil to ask again at once, a
// retryable error to ask again later, any other to give up.
func (c *Client) judge(k *call) error {
	switch k.out.code {
	case codeMoved:
		to := owner{shard.ServerID(k.text), k.out.to.epoch}
		if k.link == nil {
			to = k.out.to
		}
		if to.epoch <= shard.Epoch(k.header.Epoch) {
			return fmt.Errorf("%w: server %q is at epoch %d", ErrUnavailable, k.server.ID, to.epoch)
		}
		c.routes.moved(shard.ID(k.header.Shard), to)
		return nil
	case codeStaleClock:
		if c.observer {
			return fmt.Errorf("%w: the clock %d is over", ErrUnavailable, k.header.Clock)
		}
	case codeRetry:
		return fmt.Errorf("%w: the shard is frozen or not active yet on server %q", ErrUnavailable, k.server.ID)
	case codeUnknownShard:
		return fmt.Errorf("%w: server %q does not have the shard", ErrUnavailable, k.server.ID)
	}
	err := ErrRefused
	if k.out.code < codeEnd && codeErrors[k.out.code] != nil {
		err = codeErrors[k.out.code]
	}
	if k.text != "" {
		return fmt.Errorf("%w: %s", err, k.text)
	}
	return err
}

// The pause before a data request is sent again doubles from minRetryPause to maxRetryPause.
const (
	minRetryPause = time.Millisecond
	maxRetryPause = 50 * time.Millisecond
)

// pause waits before calls are sent again, longer each time, and asks for new routes
// unless the answers have just given them. The first repetition after a freeze comes
// at once: the server has answered when it was over.
func (c *Client) pause(ctx context.Context, again []*call) error {
	attempts, ask := 0, false
	for _, k := range again {
		frozen := k.err == nil && k.out.code == codeRetry
		if !k.later || (frozen && k.attempts == 1) {
			continue
		}
		attempts = max(attempts, k.attempts)
		ask = ask || !frozen || k.attempts%8 == 0
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.ctx.Err() != nil:
		return ErrClosed
	case attempts == 0:
		return nil
	}
	if ask {
		refresh, cancel := context.WithTimeout(ctx, attemptTimeout)
		_ = c.routes.refresh(refresh) // without an answer the old routes are tried again
		cancel()
	}
	timer := time.NewTimer(min(minRetryPause<<min(attempts-1, 6), maxRetryPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
