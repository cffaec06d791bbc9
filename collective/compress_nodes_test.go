package collective_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/collective/schedule"
)

// byNode puts ranks on nodes.
func byNode(nodes ...int) func(int, *collective.Config) {
	return func(rank int, c *collective.Config) { c.Node = fmt.Sprint(nodes[rank]) }
}

// Where nodes have several ranks, in any order and number, only what goes between the nodes is
// packed: the error is that of two roundings, all ranks have the same bits, and feedback makes
// good what has been lost.
func TestCompressedOverNodes(t *testing.T) {
	leakless(t)
	for _, nodes := range [][]int{
		{0, 0, 1, 1},
		{0, 0, 0, 1, 1},
		{0, 1, 0, 1, 0, 1, 1},
		{0, 0, 1, 1, 2, 2, 2, 2, 2},
		{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
	} {
		n := len(nodes)
		if collective.RaceEnabled && n > 5 {
			continue
		}
		groups := found(t, n, func(rank int, c *collective.Config) {
			byNode(nodes...)(rank, c)
			c.SegmentBytes = 4000
		})
		for i, count := range []int{0, 1, 2, n - 1, n + 1, 127, 129, 128*n + 1, 10_007} {
			compressedByEach(t, groups, count, i, fmt.Sprint("nodes ", nodes))
		}
		closeAll(groups)
	}
}

// Within a node elements travel as they are, each column once in each direction; between nodes
// packed. With Deterministic, or where Direct is forced, all of it is packed.
func TestCompressedBytesOverNodes(t *testing.T) {
	const n, count = 4, n4 * codec.Block
	x := gaussians(n, count)
	packed := func(elems int) int64 { return int64(codec.E4M3.EncodedLen(elems)) }
	for name, c := range map[string]struct {
		nodes  []int
		change func(c *collective.Config)
		want   int64
	}{
		"two of two":    {[]int{0, 1, 0, 1}, func(*collective.Config) {}, 2*4*count/2 + 2*packed(count/4)},
		"alone":         {[]int{0, 1, 2, 2}, func(*collective.Config) {}, 2 * (n - 1) * packed(count/n)},
		"one node":      {[]int{0, 0, 0, 0}, func(*collective.Config) {}, 2 * (n - 1) * packed(count/n)},
		"deterministic": {[]int{0, 1, 0, 1}, func(c *collective.Config) { c.Deterministic = true }, 2 * (n - 1) * packed(count/n)},
		"forced":        {[]int{0, 1, 0, 1}, func(c *collective.Config) { force(schedule.Direct, c) }, 2 * (n - 1) * packed(count/n)},
	} {
		groups := found(t, n, func(rank int, cfg *collective.Config) {
			byNode(c.nodes...)(rank, cfg)
			c.change(cfg)
		})
		var before [n]int64
		for rank, g := range groups {
			before[rank] = g.Traffic().Sent
		}
		compressed(t, groups, x, collective.Sum, true, plain(codec.E4M3))
		for rank, g := range groups {
			require.Equal(t, c.want, g.Traffic().Sent-before[rank], "%s, rank %d", name, rank)
		}
	}
}
