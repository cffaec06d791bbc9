package collective_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/starved"
)

// mappings counts those of shared memory.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(maps), "elasticps-collective")
}

// Case 25: nothing is left mapped after Close, Abort, the death of a rank, or a Join that failed.
func TestCase25NothingStaysMapped(t *testing.T) {
	leakless(t)
	before := mappings(t)
	for name, end := range map[string]func(t *testing.T, groups []*collective.Group){
		"close": func(*testing.T, []*collective.Group) {},
		"abort": func(_ *testing.T, groups []*collective.Group) { groups[1].Abort() },
		"death": func(_ *testing.T, groups []*collective.Group) { groups[1].Kill() },
		"shrink": func(t *testing.T, groups []*collective.Group) {
			groups[1].Kill()
			shrinkAll(t, groups, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			groups := found(t, 3, overMemory(t, nil))
			buffers, _ := allocAll[float32](t, groups, collective.Float32, 10_000)
			onAll(t, 3, func(rank int) error {
				return groups[rank].AllReduce(background(t), buffers[rank], buffers[rank], collective.Sum)
			})
			require.Greater(t, mappings(t), before)
			end(t, groups)
			closeAll(groups)
		})
		require.Equal(t, before, mappings(t), name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	change := overMemory(t, nil)
	for _, err := range errorsOf(2, func(rank int) error {
		cfg := collective.Config{Rank: rank, Size: 3}
		change(rank, &cfg)
		_, err := collective.Join(ctx, cfg)
		return err
	}) {
		require.ErrorIs(t, err, collective.ErrMissing)
	}
	require.Equal(t, before, mappings(t))
}

// What a mate's memory says and cannot be is a typed error that names the rank, on whoever
// reads it, and through it on all: no crash, and no wait to the end of the call's time.
func TestIntruderInSharedMemory(t *testing.T) {
	word := func(mem []byte, at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&mem[at])) }
	shared, byRing := schedule.Shared, schedule.Ring
	for name, c := range map[string]struct {
		by    schedule.Algorithm
		write func(g *collective.Group)
	}{
		"steps ahead": {shared, func(g *collective.Group) {
			mem, step, _, _ := g.Arena(0)
			word(mem, step).Store(1 << 60)
		}},
		"a call of nonsense": {shared, func(g *collective.Group) {
			mem, step, _, _ := g.Arena(0)
			for i := range 128 {
				mem[g.CallAt(0)+i] = 0xa5
			}
			word(mem, step).Add(1)
		}},
		"more written than there is room for": {byRing, func(g *collective.Group) {
			mem, _, head, _ := g.Arena(0)
			word(mem, head).Add(1 << 40)
		}},
		"less written than was read": {byRing, func(g *collective.Group) {
			mem, _, head, _ := g.Arena(0)
			word(mem, head).Store(0)
		}},
		"a frame of nonsense": {byRing, func(g *collective.Group) {
			mem, _, head, _ := g.Arena(0)
			for i := len(mem) / 2; i < len(mem); i++ {
				mem[i] = 0xa5
			}
			word(mem, head).Add(640)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 2, overMemory(t, func(_ int, cfg *collective.Config) { force(c.by, cfg) }))
			for range 3 {
				onAll(t, 2, func(rank int) error { return sumOnes(background(t), groups[rank], 100_000) })
			}
			c.write(groups[1])
			m := starved.Watch(t)
			err := sumOnes(background(t), groups[0], 100_000)
			m.Less(m.Took(), 2*soon)
			require.ErrorIs(t, err, collective.ErrRankLost)
			require.Equal(t, []int{1}, collective.Lost(err))
			require.Error(t, sumOnes(background(t), groups[1], 100_000))
		})
	}
}

// Whatever is written anywhere into the memory of a rank while calls are under way, no rank
// crashes or waits beyond the time of its call.
func TestNoiseInSharedMemory(t *testing.T) {
	leakless(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 6 {
		groups := found(t, 3, overMemory(t, func(_ int, c *collective.Config) {
			c.Group = fmt.Sprint("noise ", round)
			if round%2 == 1 {
				force(schedule.HalvingDoubling, c)
			}
		}))
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		noise := make(chan struct{})
		mem, _, head, _ := groups[2].Arena(0)
		go func() {
			defer close(noise)
			for ctx.Err() == nil {
				at := rng.IntN(head+2048) &^ 7
				(*atomic.Uint64)(unsafe.Pointer(&mem[at])).Store(rng.Uint64() >> rng.IntN(64))
				runtime.Gosched()
			}
		}()
		_ = errorsOf(3, func(rank int) error { // results and errors are whatever they are
			for range 1000 {
				x := make([]float32, 30_000)
				if err := groups[rank].AllReduce(ctx, collective.Of(x), collective.Of(x), collective.Sum); err != nil {
					return err
				}
			}
			return nil
		})
		cancel()
		<-noise
		closeAll(groups)
	}
}

// Memory that a peer may cut off, or that is none, is not mapped.
func TestMemoryThatIsRefused(t *testing.T) {
	leakless(t)
	const size = 8192
	fd, mem, err := collective.CreateMemory(size)
	require.NoError(t, err)
	require.ErrorIs(t, unix.Ftruncate(fd, 0), unix.EPERM, "it is sealed")
	require.ErrorIs(t, unix.Ftruncate(fd, 2*size), unix.EPERM)
	again, err := unix.Dup(fd)
	require.NoError(t, err)
	other, err := collective.MapMemory(again, size)
	require.NoError(t, err)
	mem[100] = 7
	require.Equal(t, byte(7), other[100])
	require.NoError(t, unix.Munmap(other))
	require.NoError(t, unix.Munmap(mem))
	_, err = collective.MapMemory(fd, size/2)
	require.ErrorContains(t, err, "of 8192 bytes, must be 4096")

	bare, err := unix.MemfdCreate("test", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(bare, size))
	_, err = collective.MapMemory(bare, size)
	require.ErrorContains(t, err, "shared memory with seals 0x0")
	require.ErrorIs(t, err, collective.ErrRefused)

	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	plain, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = collective.MapMemory(plain, size)
	require.ErrorContains(t, err, "what came for shared memory is none")
}

// Groups of the same ranks, each with calls and memory of its own, at the same time.
func TestCase25ManyGroupsAtOnce(t *testing.T) {
	leakless(t)
	const n, numGroups = 3, 4
	change := overMemory(t, nil)
	errs := errorsOf(numGroups, func(k int) error {
		groups := found(t, n, func(rank int, c *collective.Config) {
			change(rank, c)
			c.Group = fmt.Sprint("one of many ", k)
		})
		for _, err := range errorsOf(n, func(rank int) error {
			b, err := groups[rank].Alloc(background(t), collective.Float32, 20_000+k)
			if err != nil {
				return err
			}
			x, err := collective.Elements[float32](b)
			if err != nil {
				return err
			}
			for round := range 20 {
				for i := range x {
					x[i] = float32(k + round)
				}
				if err := groups[rank].AllReduce(background(t), b, b, collective.Sum); err != nil {
					return err
				}
				if err := sumOnes(background(t), groups[rank], 1+k*7000); err != nil {
					return err
				}
				if x[0] != float32(n*(k+round)) || x[len(x)-1] != x[0] {
					return fmt.Errorf("group %d, round %d: %v", k, round, x[0])
				}
			}
			return nil
		}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
}
