package accelerator

import (
	"context"
	"fmt"
	"runtime"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

// initBlocking makes the communicator of a library that waits in that call for all ranks
// and cannot be stopped. It has a thread of its own, so that the device goes on; when ctx
// ends, the thread destroys what the call may still return.
func (g *Group) initBlocking(ctx context.Context, id []byte) error {
	type result struct {
		comm abi.Handle
		err  error
	}
	lib, done := g.d.lib, make(chan result)
	lib.joining.Add(1)
	go func() {
		defer lib.joining.Add(-1)
		runtime.LockOSThread() // for the current device; ends with the goroutine
		var r result
		if r.err = lib.check("set device", lib.abi.SetDevice(g.d.index)); r.err == nil {
			var code int
			if r.comm, code = lib.abi.Init(id, g.cfg.Size, g.cfg.Rank, lib.version); code != success {
				r.err = lib.callError("init", code, 0)
			}
		}
		select {
		case done <- r:
		case <-ctx.Done():
			if r.err == nil {
				_ = lib.abi.Destroy(r.comm) // nobody is there to hear of it
			}
		}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return r.err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout) // else nobody would end it
		defer cancel()
		return g.d.do(ctx, func() error {
			g.comm = r.comm
			return nil
		})
	case <-ctx.Done():
		return fmt.Errorf("%w: not all of %d: %w", collective.ErrMissing, g.cfg.Size, context.Cause(ctx))
	}
}
