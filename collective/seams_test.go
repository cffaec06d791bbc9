package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/shard/store"
)

// allOf makes a buffer on each rank of several groups, fills it with ones, adds it up in
// place, and does the same compressed, by the bytes that the format has.
func allOf(t *testing.T, groups []*collective.Group) []collective.Buffer {
	t.Helper()
	buffers := make([]collective.Buffer, len(groups))
	onAll(t, len(groups), func(rank int) (err error) {
		buffers[rank], err = groups[rank].Alloc(background(t), collective.Float32, 30_000)
		return errors.Join(err, addOnes(background(t), groups[rank], buffers[rank]))
	})
	return buffers
}

func addOnes(ctx context.Context, g *collective.Group, b collective.Buffer) error {
	x, err := collective.Elements[float32](b)
	if err != nil {
		return err
	}
	n := float32(g.Size())
	for _, c := range []collective.Compression{{}, {Format: codec.BFloat16}} {
		for i := range x {
			x[i] = 1
		}
		sent := g.Traffic().Sent
		h, err := g.Start(ctx, collective.Call{Collective: collective.AllReduce, Dst: b, Src: b, Op: collective.Sum, Compression: c})
		if err == nil {
			err = h.Wait(ctx)
		}
		if err != nil {
			return err
		}
		if slices.Min(x) != n || slices.Max(x) != n {
			return fmt.Errorf("%v: %v to %v, want %v", c.Format, slices.Min(x), slices.Max(x), n)
		}
		if sent = g.Traffic().Sent - sent; c.Format != 0 && (sent == 0) != (n == 1) {
			return fmt.Errorf("%v: %d bytes sent", c.Format, sent)
		}
	}
	return sumOnes(ctx, g, 100_000)
}

// Groups that were split share memory of their own: their calls, buffers and compression work
// beside those of the group that was split, with buffers of the other one too, and go on when
// that is closed, in either order.
func TestPartsShareMemory(t *testing.T) {
	for _, first := range []string{"parent", "parts"} {
		t.Run(first, func(t *testing.T) {
			leakless(t)
			groups := found(t, 4, overMemory(t, func(_ int, c *collective.Config) { c.Streams = 3 }))
			parts := splitAll(t, groups, func(rank int) (int, int) { return rank % 2, 0 })
			ofGroups, ofParts := allOf(t, groups), allOf(t, parts)
			onAll(t, 4, func(rank int) error {
				return errors.Join(addOnes(background(t), groups[rank], ofParts[rank]), addOnes(background(t), parts[rank], ofGroups[rank]))
			})
			left, theirs, gone := parts, ofParts, ofGroups
			if first == "parent" {
				closeAll(groups)
			} else {
				closeAll(parts)
				left, theirs, gone = groups, ofGroups, ofParts
			}
			onAll(t, 4, func(rank int) error { return addOnes(background(t), left[rank], theirs[rank]) })
			require.ErrorIs(t, left[0].AllReduce(background(t), gone[0], gone[0], collective.Sum), collective.ErrArgument)
		})
	}
}

// A group that was split loses a rank and takes a newcomer in, which need not leave out the
// calibration as the others do; buffers of before go on as any other.
func TestPartsShrinkAndGrow(t *testing.T) {
	leakless(t)
	change := overMemory(t, nil)
	parts := splitAll(t, found(t, 6, change), func(rank int) (int, int) { return rank % 2, 0 })
	evens := []*collective.Group{parts[0], parts[2], parts[4]}
	old := allOf(t, evens)
	parts[2].Kill()
	smaller := shrinkAll(t, evens, 1)
	onAll(t, 2, func(i int) error { return addOnes(background(t), smaller[i], old[2*i]) })
	grown := make([]*collective.Group, 3)
	onAll(t, 3, func(i int) (err error) {
		if i < 2 {
			grown[i], err = smaller[i].Grow(background(t), 1)
			return err
		}
		cfg := collective.Config{Name: "newcomer"}
		change(i, &cfg)
		cfg.Group = parts[0].Name()
		grown[i], err = collective.Join(background(t), cfg)
		return err
	})
	t.Cleanup(func() { closeAll(grown) })
	allOf(t, grown)
	last := []collective.Buffer{old[0], old[2], collective.Of(make([]float32, old[0].Len()))}
	onAll(t, 3, func(i int) error { return addOnes(background(t), grown[i], last[i]) })
}

// Ranks of one host, of which some share memory and others do not, or by several connections.
func TestMixedConnections(t *testing.T) {
	for name, change := range map[string]func(rank int, c *collective.Config){
		"one without memory": func(rank int, c *collective.Config) { c.SocketsOnly = rank == 1 },
		"one by TCP":         func(rank int, c *collective.Config) { c.TCPOnly = rank == 1 },
		"each another":       func(rank int, c *collective.Config) { c.TCPOnly, c.SocketsOnly, c.Streams = rank == 1, rank == 0, 4 },
		"in order": func(rank int, c *collective.Config) {
			c.Deterministic, c.SocketsOnly = true, rank == 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 4, overMemory(t, change))
			allOf(t, groups)
			allOf(t, splitAll(t, groups, func(rank int) (int, int) { return rank / 2, 0 }))
		})
	}
}

// Ranks of which one compresses, and the others wait for it in memory, have an error on all.
func TestCompressedMismatchInMemory(t *testing.T) {
	for _, count := range []int{1, 30_000} {
		for _, alloc := range []bool{false, true} {
			t.Run(fmt.Sprint(count, alloc), func(t *testing.T) {
				leakless(t)
				groups := found(t, 3, overMemory(t, nil))
				buffers, _ := allocAll[float32](t, groups, collective.Float32, count)
				m := starved.Watch(t)
				for rank, err := range errorsOf(3, func(rank int) error {
					b := buffers[rank]
					if !alloc {
						b = collective.Of(make([]float32, count))
					}
					c := collective.Call{Collective: collective.AllReduce, Dst: b, Src: b, Op: collective.Sum}
					if rank == 1 {
						c.Compression.Format = codec.E4M3
					}
					h, err := groups[rank].Start(background(t), c)
					if err != nil {
						return err
					}
					return h.Wait(background(t))
				}) {
					require.ErrorIs(t, err, collective.ErrMismatch, "rank %d", rank)
				}
				m.Less(m.Took(), 2*soon)
			})
		}
	}
}

// What rounding has lost in one group is not added in another one of as many ranks.
func TestFeedbackIsOfOneGroup(t *testing.T) {
	leakless(t)
	const n = 4
	groups := found(t, n, nil)
	rows := splitAll(t, groups, func(rank int) (int, int) { return rank / 2, 0 })
	columns := splitAll(t, groups, func(rank int) (int, int) { return rank % 2, 0 })
	left := make([]codec.Feedback, n)
	x := gaussians(n, 2000)
	on := func(g []*collective.Group, feedback bool) (digests [n][32]byte) {
		onAll(t, n, func(rank int) error {
			c := collective.Compression{Format: codec.E5M2}
			if feedback {
				c.Feedback, c.Name = &left[rank], "x"
			}
			out := slices.Clone(x[rank])
			err := g[rank].AllReduceCompressed(background(t), out, out, collective.Sum, c)
			digests[rank] = digestOf(out)
			return err
		})
		return digests
	}
	fresh := on(columns, false)
	on(rows, true)
	require.Equal(t, fresh, on(columns, true))
	require.NotEqual(t, fresh, on(columns, true), "and what this one has lost is")
}

// A group that is closed while its Shrink waits for a rank in vain leaves nothing.
func TestCloseDuringShrink(t *testing.T) {
	leakless(t)
	var meeting collective.Store
	groups := found(t, 2, overMemory(t, func(rank int, c *collective.Config) {
		if rank == 0 {
			meeting = c.Store
		}
	}))
	buffers, _ := allocAll[float32](t, groups, collective.Float32, 1000)
	key := "collective/" + groups[0].Name()
	before, err := meeting.Get(background(t), key)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(background(t))
	failed := make(chan error, 1)
	go func() {
		_, err := groups[0].Shrink(ctx)
		failed <- err
	}()
	require.Eventually(t, func() bool { // it has come to the rendezvous
		e, err := meeting.Get(background(t), key)
		return err == nil && e.Revision > before.Revision
	}, patience, time.Millisecond)
	require.NoError(t, groups[0].Close())
	_, err = collective.Elements[float32](buffers[0])
	require.NoError(t, err, "the next group may want it")
	cancel()
	require.ErrorIs(t, <-failed, collective.ErrMissing)
	_, err = collective.Elements[float32](buffers[0])
	require.ErrorIs(t, err, collective.ErrArgument)
	_, err = groups[0].Shrink(background(t))
	require.ErrorIs(t, err, collective.ErrClosed)
}

// givesUp is a store whose user gives up when it begins to watch.
type givesUp struct {
	collective.Store
	cancel context.CancelFunc
}

func (s givesUp) Watch(ctx context.Context, prefix string) (<-chan store.Event, error) {
	s.cancel()
	<-ctx.Done()
	return s.Store.Watch(ctx, prefix)
}

// A rank that gives up between its proposal and the wait for the others says who is missing.
func TestGiveUpBeforeTheWait(t *testing.T) {
	leakless(t)
	ctx, cancel := context.WithCancel(background(t))
	defer cancel()
	cfg := collective.Config{Rank: 0, Size: 2}
	overMemory(t, nil)(0, &cfg)
	cfg.Store = givesUp{cfg.Store, cancel}
	_, err := collective.Join(ctx, cfg)
	var missing *collective.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{"rank 1"}, missing.Names)
	require.ErrorIs(t, err, context.Canceled)
}

// An algorithm that needs others is none for a rank that is left alone.
func TestSharedAlone(t *testing.T) {
	leakless(t)
	groups := found(t, 2, overMemory(t, func(_ int, c *collective.Config) { force(schedule.Shared, c) }))
	onAll(t, 2, func(rank int) error { return sumOnes(background(t), groups[rank], 100_000) })
	groups[1].Kill()
	alone := shrinkAll(t, groups, 1)
	require.NoError(t, alone[0].Barrier(background(t)))
}
