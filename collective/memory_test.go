package collective_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
)

// Buffers of several chunks, and of a chunk and an element, in place and not, one after
// the other: no chunk is taken before it is complete or overwritten while it is read.
func TestChunksInSharedMemory(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7} {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			leakless(t)
			groups := found(t, n, overMemory(t, nil))
			for round, count := range []int{1 << 18, 1<<16 + 1, 300_001, 4097, 5, 100_000, 1 << 19} {
				onAll(t, n, func(rank int) error { return addUp(t, groups[rank], count, round) })
			}
		})
	}
}

// addUp sums whole numbers that differ by rank, element and round. It overwrites its buffers
// right after, as a caller may.
func addUp(t *testing.T, g *collective.Group, count, round int) error {
	src := make([]float32, count)
	for i := range src {
		src[i] = float32((g.Rank() + 1) * (i%1000 + round))
	}
	dst := src
	if round%2 == 0 {
		dst = make([]float32, count)
	}
	if err := g.AllReduce(background(t), collective.Of(dst), collective.Of(src), collective.Sum); err != nil {
		return err
	}
	n := g.Size()
	for i, x := range dst {
		if want := float32(n * (n + 1) / 2 * (i%1000 + round)); x != want {
			return fmt.Errorf("element %d of %d is %v, want %v", i, count, x, want)
		}
	}
	clear(src)
	clear(dst)
	return nil
}

// The sum of 16 bit numbers is rounded once, and an average is that of the ranks' order, by
// shared memory as by sockets: the bits are the same.
func TestSharedMemoryFolds(t *testing.T) {
	const n, count = 3, 70_001
	results := map[string][]collective.Brain{}
	for name, change := range kinds(t) {
		groups := found(t, n, func(rank int, c *collective.Config) {
			c.Group = "folds"
			if change != nil {
				change(rank, c)
			}
		})
		onAll(t, n, func(rank int) error {
			x := make([]collective.Brain, count)
			for i := range x {
				x[i] = toBrain(float64((i*7+rank*13)%101) * 0.37)
			}
			err := groups[rank].AllReduce(background(t), collective.Of(x), collective.Of(x), collective.Average)
			if rank == 0 {
				results[name] = x
			}
			return err
		})
	}
	for name := range results {
		require.Equal(t, results["tcp"], results[name], name)
	}
}
