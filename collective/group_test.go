package collective_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/internal/leak"
	"github.com/elasticps/elasticps/shard/store"
)

// patience is far beyond what anything here takes.
const patience = 60 * time.Second

func background(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// found makes the groups of all founders with one rendezvous; change adapts each Config.
func found(tb testing.TB, n int, change func(rank int, c *collective.Config)) []*collective.Group {
	tb.Helper()
	local := &collective.Local{}
	groups := make([]*collective.Group, n)
	ctx := background(tb)
	onAll(tb, n, func(rank int) error {
		cfg := collective.Config{Rank: rank, Size: n, Local: local, NoCalibration: true}
		if change != nil {
			change(rank, &cfg)
		}
		var err error
		groups[rank], err = collective.Join(ctx, cfg)
		return err
	})
	tb.Cleanup(func() { closeAll(groups) })
	return groups
}

func closeAll(groups []*collective.Group) {
	for _, g := range groups {
		if g != nil {
			_ = g.Close()
		}
	}
}

// overSockets lets ranks meet in a store and connect by sockets.
func overSockets(tb testing.TB, tcp bool, change func(rank int, c *collective.Config)) func(int, *collective.Config) {
	tb.Helper()
	s := memoryStore(tb)
	return func(rank int, c *collective.Config) {
		c.Local, c.Store, c.TCPOnly, c.SocketsOnly = nil, s, tcp, true
		c.Secret = []byte("of the test")
		c.Log = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
		if change != nil {
			change(rank, c)
		}
	}
}

// overMemory lets ranks meet in a store and share memory.
func overMemory(tb testing.TB, change func(rank int, c *collective.Config)) func(int, *collective.Config) {
	return overSockets(tb, false, func(rank int, c *collective.Config) {
		c.SocketsOnly = false
		if change != nil {
			change(rank, c)
		}
	})
}

func memoryStore(tb testing.TB) store.Store {
	tb.Helper()
	s, err := store.NewMemory(store.Config{})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// onAll calls f for all ranks at once and wants no error.
func onAll(tb testing.TB, n int, f func(rank int) error) {
	tb.Helper()
	for rank, err := range errorsOf(n, f) {
		require.NoError(tb, err, "rank %d", rank)
	}
}

// errorsOf calls f for all ranks at once.
func errorsOf(n int, f func(rank int) error) []error {
	type result struct {
		rank int
		err  error
	}
	results := make(chan result, n)
	for rank := range n {
		go func() { results <- result{rank, f(rank)} }()
	}
	errs := make([]error, n)
	for range n {
		r := <-results
		errs[r.rank] = r.err
	}
	return errs
}

func TestSmallestUse(t *testing.T) {
	leakless(t)
	for name, change := range map[string]func(int, *collective.Config){
		"local": nil, "memory": overMemory(t, nil), "unix": overSockets(t, false, nil), "tcp": overSockets(t, true, func(_ int, c *collective.Config) { c.Streams = 3 }),
		"calibrated":       overMemory(t, func(_ int, c *collective.Config) { c.NoCalibration = false }),
		"calibrated, unix": overSockets(t, false, func(_ int, c *collective.Config) { c.NoCalibration = false }),
		"deterministic": overSockets(t, false, func(_ int, c *collective.Config) {
			c.NoCalibration, c.Deterministic = false, true
		}),
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			groups := found(t, 3, change)
			onAll(t, 3, func(rank int) error {
				x := []float32{float32(rank), 1, 2}
				if err := groups[rank].AllReduce(background(t), collective.Of(x), collective.Of(x), collective.Sum); err != nil {
					return err
				}
				if x[0] != 3 || x[1] != 3 || x[2] != 6 {
					return fmt.Errorf("got %v", x)
				}
				return groups[rank].Barrier(background(t))
			})
			for rank, g := range groups {
				require.Equal(t, rank, g.Rank())
				require.Equal(t, uint64(1), g.Epoch())
				require.Equal(t, []string{"rank-0", "rank-1", "rank-2"}, g.Members())
				require.NoError(t, g.Err())
			}
		})
	}
}

// freeAddresses returns addresses at which nobody listens, for now.
func freeAddresses(tb testing.TB, n int) []string {
	tb.Helper()
	var addresses []string
	for tries := 0; len(addresses) < n; tries++ {
		require.Less(tb, tries, 1000, "no free port")
		// Below those that systems give to outgoing connections, which may take one meanwhile.
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(10_000)))
		if err == nil {
			defer l.Close()
			addresses = append(addresses, l.Addr().String())
		}
	}
	return addresses
}

// leakless fails the test if it leaves goroutines or descriptors.
func leakless(t *testing.T) {
	t.Helper()
	leak.Check(t, 20*time.Second)
}
