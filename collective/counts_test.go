package collective_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
)

// sumOfRanks adds up what differs in every element and on every rank, in integers.
func sumOfRanks(t *testing.T, g *collective.Group, count int) error {
	n, x := int64(g.Size()), make([]int64, count)
	for i := range x {
		x[i] = int64(i)<<20 + int64(g.Rank())
	}
	if err := g.AllReduce(background(t), collective.Of(x), collective.Of(x), collective.Sum); err != nil {
		return err
	}
	for i := range x {
		if want := n*int64(i)<<20 + n*(n-1)/2; x[i] != want {
			return fmt.Errorf("%d elements: element %d is %d, want %d", count, i, x[i], want)
		}
	}
	return nil
}

// zeroCalls are all operations, on nothing.
func zeroCalls() (calls []collective.Call) {
	none := collective.Of([]float32{})
	for c := collective.AllReduce; c < collective.Barrier; c++ {
		calls = append(calls, collective.Call{Collective: c, Dst: none, Src: none, Op: collective.Sum})
	}
	return calls
}

// Case 8: an operation on nothing does nothing, on whatever the ranks are connected by; it has its
// place in the order, so that a rank which leaves it out is found out.
func TestCase8CountZero(t *testing.T) {
	for name, change := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 3, change)
			made := uint64(0)
			for _, c := range zeroCalls() {
				onAll(t, 3, func(rank int) error {
					h, err := groups[rank].Start(background(t), c)
					if err == nil {
						err = h.Wait(background(t))
					}
					if err != nil {
						return err
					}
					return sumOfRanks(t, groups[rank], 5)
				})
				made += 2
				require.Equal(t, made, groups[2].Completed(), "%v", c.Collective)
			}
			for rank, err := range errorsOf(3, func(rank int) error {
				if rank != 1 {
					h, err := groups[rank].Start(background(t), zeroCalls()[0])
					if err != nil {
						return err
					}
					if err := h.Wait(background(t)); err != nil { // it may have been found out by then
						return err
					}
				}
				for {
					if err := sumOfRanks(t, groups[rank], 5); err != nil {
						return err
					}
				}
			}) {
				require.ErrorIs(t, err, collective.ErrMismatch, "rank %d", rank)
			}
		})
	}
}

// Case 9: any count, less than the number of ranks too, by every algorithm.
func TestCase9EveryCount(t *testing.T) {
	for n := 1; n <= 9; n++ {
		for _, a := range algorithms {
			groups := found(t, n, func(rank int, c *collective.Config) {
				c.SegmentBytes = 16
				c.Node = fmt.Sprint(rank * rank % 3)
				force(a, c)
			})
			onAll(t, n, func(rank int) error {
				for count := range 2*n + 2 {
					if err := sumOfRanks(t, groups[rank], count); err != nil {
						return fmt.Errorf("%d ranks, %v: %w", n, a, err)
					}
				}
				return nil
			})
			closeAll(groups)
		}
	}
}

// Case 10: counts that the ranks of a node do not divide, on nodes of 7 and of 8 ranks.
func TestCase10UnevenNodes(t *testing.T) {
	const n = 15
	for _, segment := range []int{0, 24} {
		groups := found(t, n, func(rank int, c *collective.Config) {
			c.SegmentBytes, c.Node = segment, fmt.Sprint(rank/7%2)
			if rank == 14 {
				c.Node = "1"
			}
			force(schedule.Hierarchical, c)
		})
		onAll(t, n, func(rank int) error {
			for count := range 64 {
				if err := sumOfRanks(t, groups[rank], count); err != nil {
					return err
				}
			}
			if segment > 0 {
				return nil
			}
			return sumOfRanks(t, groups[rank], 10_007)
		})
		closeAll(groups)
	}
}
