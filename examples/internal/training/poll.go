package training

import (
	"context"
	"time"
)

const pollInterval = 20 * time.Millisecond

// Poll returns when the condition holds, or the cause when ctx ends first. It asks at
// once, and then every 20 ms.
func Poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
