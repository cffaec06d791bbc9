//go:build nccl && cgo && linux

package nccl

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/collective/internal/acceltest"
)

// otherRank is the variable that makes this program a rank; its value is the library, and the
// addresses of both ranks.
const otherRank = "ELASTICPS_TEST_NCCL_RANK"

// joinOverGroup joins by a group of package collective, as programs do.
func joinOverGroup(ctx context.Context, l *accelerator.Library, rank int, addresses []string) (*collective.Group, *accelerator.Group, error) {
	c, err := collective.Join(ctx, collective.Config{Rank: rank, Size: 2, Addresses: addresses})
	if err != nil {
		return nil, nil, err
	}
	d, err := l.Device(ctx, rank)
	if err != nil {
		return c, nil, err
	}
	g, err := d.Join(ctx, accelerator.GroupConfig{Rank: rank, Size: 2, Exchange: accelerator.Through(c)})
	return c, g, err
}

// double adds the ranks' values.
func double(ctx context.Context, g *accelerator.Group) error {
	w := &acceltest.World{Devices: make([]*accelerator.Device, 2)}
	w.Devices[g.Rank()] = g.Device()
	b, err := w.Put(ctx, g.Rank(), accelerator.Float64, []float64{1.5, float64(g.Rank())})
	if err != nil {
		return err
	}
	if err := g.AllReduce(ctx, b, b, collective.Sum); err != nil {
		return err
	}
	return w.Want(ctx, g.Rank(), b, []float64{3, 1})
}

// TestProcesses has a rank in another process, which dies in the middle.
func TestProcesses(t *testing.T) {
	if words := strings.Fields(os.Getenv(otherRank)); len(words) > 0 {
		secondRank(t, words[0], words[1:])
		return
	}
	f := acceltest.Build(t, accelerator.NVIDIA)
	l := f.Open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestProcesses$")
	addresses := freeAddresses(t, 2)
	cmd.Env = append(os.Environ(), otherRank+"="+f.Path+" "+strings.Join(addresses, " "))
	require.NoError(t, cmd.Start())
	c, g, err := joinOverGroup(ctx, l, 0, addresses)
	require.NoError(t, err)
	require.NoError(t, double(ctx, g))
	require.NoError(t, c.Barrier(ctx)) // the other one waits in a second call from now on
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	for c.Err() == nil {
		_ = c.Barrier(ctx) // notices the death, as the library of this fake cannot
	}
	require.ErrorIs(t, c.Err(), collective.ErrRankLost)
	require.NoError(t, g.Abort())
	alone, err := g.Device().Join(ctx, accelerator.GroupConfig{Rank: 0, Size: 1, Exchange: acceltest.Exchange(1)[0]})
	require.NoError(t, err)
	require.NoError(t, alone.Barrier(ctx))
	require.NoError(t, c.Close())
	require.NoError(t, l.Close())
	forgive(t, f)
}

// forgive takes from the counters what the process that was killed has not given back.
func forgive(t *testing.T, f *acceltest.Fake) {
	s := f.Stats(t)
	require.Zero(t, s.Misuse)
	require.EqualValues(t, 1, s.Comms, "of the other process: %+v", s)
	require.NoError(t, os.Truncate(filepath.Join(f.Dir, "stats"), 0))
	require.NoError(t, os.Truncate(filepath.Join(f.Dir, "stats"), 64))
}

// freeAddresses returns addresses at which nobody listens, for now.
func freeAddresses(t *testing.T, n int) []string {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close() // all at once, so that they are different ones
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

func secondRank(t *testing.T, path string, addresses []string) {
	l, err := Open(accelerator.Config{Vendors: []accelerator.Vendor{accelerator.NVIDIA}, Library: path, Runtime: path})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, g, err := joinOverGroup(ctx, l, 1, addresses)
	require.NoError(t, err)
	require.NoError(t, double(ctx, g))
	require.NoError(t, c.Barrier(ctx))
	t.Log(fmt.Sprint("not killed: ", g.Barrier(ctx)))
}
