package ps_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
)

// T6, uneven finish: workers end after 1, 10 and 100 steps in every mode, and nobody
// is disturbed. That nothing is left over is checked when all have stopped.
func TestT6UnevenFinish(t *testing.T) {
	for _, mode := range []ps.Consistency{{Mode: ps.BSP}, {Mode: ps.SSP, Staleness: 3}, {Mode: ps.SSP}, {Mode: ps.ASP}} {
		t.Run(fmt.Sprint(mode.Mode, " ", mode.Staleness), func(t *testing.T) {
			together(t)
			everywhere(t, func(t *testing.T, options ...option) {
				c := newCluster(t, smallJob(mode), options...)
				c.server("s1")
				c.server("s2")
				lengths := []int{1, 10, 100}
				workers := []*ps.Worker{c.worker("w1"), c.worker("w10"), c.worker("w100")}
				parallel(t, len(workers), func(i int) error {
					for range lengths[i] {
						if err := workers[i].Push(c.ctx, "a", vector(smallElems, -1)); err != nil {
							return err
						}
						if err := workers[i].Tick(c.ctx); err != nil {
							return err
						}
					}
					if i == 1 { // one leaves in words, the others just close
						return workers[i].Leave(c.ctx)
					}
					return workers[i].Close()
				})
				c.requireValue(c.client("reader"), 111)
				require.Zero(t, c.status().Members)
				for _, w := range workers {
					require.ErrorIs(t, w.Push(c.ctx, "a", vector(smallElems, -1)), ps.ErrClosed)
					require.ErrorIs(t, w.Tick(c.ctx), ps.ErrClosed)
					require.NoError(t, w.Close(), "closed before")
				}
				late := c.worker("late") // and the job goes on
				c.step("a", smallElems, late)
				c.requireValue(late, 112)
			})
		})
	}
}

// The bound of SSP: at the moment a worker begins clock k, no member works on a clock
// below k-n; under BSP that is n = 0.
func TestStalenessBound(t *testing.T) {
	for _, mode := range []ps.Consistency{{Mode: ps.BSP}, {Mode: ps.SSP}, {Mode: ps.SSP, Staleness: 1}, {Mode: ps.SSP, Staleness: 4}} {
		t.Run(fmt.Sprint(mode.Mode, " ", mode.Staleness), func(t *testing.T) {
			together(t)
			everywhere(t, func(t *testing.T, options ...option) {
				c := newCluster(t, smallJob(mode), options...)
				c.server("s1")
				const clocks = 40
				workers := []*ps.Worker{c.worker("fast"), c.worker("middle"), c.worker("slow")}
				var finished [3]atomic.Int64 // clocks that each has finished, known before anybody can be released by it
				var ahead [3]int64           // how far each was ahead of the slowest at most
				parallel(t, len(workers), func(i int) error {
					for k := int64(0); k < clocks; k++ {
						for range i * 5 { // the later ones have more to do
							if err := workers[i].Push(c.ctx, "b", vector(10, -1)); err != nil {
								return err
							}
						}
						finished[i].Store(k + 1)
						if err := workers[i].Tick(c.ctx); err != nil {
							return err
						}
						slowest := min(finished[0].Load(), finished[1].Load(), finished[2].Load())
						ahead[i] = max(ahead[i], k+1-slowest)
					}
					return nil
				})
				furthest := max(ahead[0], ahead[1], ahead[2])
				require.LessOrEqual(t, furthest, int64(mode.Staleness))
				if mode.Staleness > 0 {
					require.Positive(t, furthest, "the fast one does not wait for all")
				}
			})
		})
	}
}
