package ps

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
)

// narrow is a connection whose kernel buffers stay as they are.
type narrow struct{ net.Conn }

// narrowPair returns the two ends of a unix socket that buffers little.
func narrowPair(t *testing.T) (mine, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer l.Close()
	mine, err = net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	theirs, err = l.Accept()
	require.NoError(t, err)
	for _, c := range []net.Conn{mine, theirs} {
		require.NoError(t, c.(*net.UnixConn).SetWriteBuffer(64<<10))
	}
	return narrow{mine}, narrow{theirs}
}

// duplex is one client's large pushes and pulls on one connection to a real session.
type duplex struct {
	*wired
	seq atomic.Uint64
}

// operate has n calls under way at once on its own leg, like an operation does: it
// sends all of them, four in a write, before it reads.
func (d *duplex) operate(ctx context.Context, kind wire.Kind, n int) error {
	g := &leg{link: d.l, wake: make(chan struct{}, 1)}
	calls := make([]*call, n)
	for i := range calls {
		k := d.newPull(ctx, BlockElems, 0)
		k.leg = g
		k.header.Kind, k.header.Epoch = kind, 1
		if kind == wire.Push {
			k.header.Incarnation, k.header.Seq = 1, d.seq.Add(1)
			k.header.Floor = k.header.Seq
		}
		calls[i] = k
		g.left.Add(1)
		if d.l.reserve(ctx, k) == nil {
			g.gather(k)
		}
	}
	g.flush()
	g.wait(ctx, 0)
	for _, k := range calls {
		if k.err != nil {
			return k.err
		}
	}
	return ctx.Err()
}

// Where the kernel buffers next to nothing, a server that writes answers and a client
// that writes gradients must not wait for each other: somebody always reads.
func TestLinkFullInBothDirections(t *testing.T) {
	s := fuzzedServer(t)
	s.cfg.WriteTimeout = time.Minute
	mine, theirs := narrowPair(t)
	var serving sync.WaitGroup
	serving.Go(func() { s.serveConn(theirs, nil) })
	d := &duplex{wired: wiredTo(t, maxInFlight, mine)}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rounds := 40 // 1 GB in all
	if testing.Short() {
		rounds = 8
	}
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			kind := wire.Push
			if i%2 == 1 {
				kind = wire.Pull
			}
			for range rounds {
				d.l.rtt.Store(slowAnswers)
				if errs[i] = d.operate(ctx, kind, 24); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	d.idle()
	_ = mine.Close()
	serving.Wait()
	s.closeData()
}
