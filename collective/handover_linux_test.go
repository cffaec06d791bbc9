package collective_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/elasticps/elasticps/collective"
)

// handOver is what a rank does with the socket over which it should hand its memory to rank 0.
type handOver func(c *net.UnixConn, size int, sign func(mem []byte, epoch uint64, place int)) error

// handMemory hands over pieces of memory of some size, signed for an epoch and a place.
func handMemory(t *testing.T, note byte, pieces, less int, epoch uint64, place int) handOver {
	return func(c *net.UnixConn, size int, sign func([]byte, uint64, int)) error {
		var fds []int
		for range pieces {
			fd, mem, err := collective.CreateMemory(size - less)
			require.NoError(t, err)
			sign(mem, epoch, place)
			require.NoError(t, unix.Munmap(mem))
			fds = append(fds, fd)
			defer unix.Close(fd)
		}
		_, _, err := c.WriteMsgUnix([]byte{note}, unix.UnixRights(fds...), nil)
		return err
	}
}

// handPipe hands over what is no memory.
func handPipe(c *net.UnixConn, _ int, _ func([]byte, uint64, int)) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	_, _, err = c.WriteMsgUnix([]byte{'m'}, unix.UnixRights(int(r.Fd())), nil)
	return err
}

// A rank that hands over anything but its memory is an error that names it, soon: nobody
// crashes, and nothing stays open or mapped.
func TestHandOverOfAnythingElse(t *testing.T) {
	for name, c := range map[string]struct {
		host   string
		places int
		hand   handOver
		want   string
	}{
		"no descriptor":       {"", 3, handMemory(t, 'm', 0, 0, 0, 0), "note 0x6d with descriptor -1"},
		"the other note":      {"", 3, handMemory(t, 'n', 1, 0, 1, 2), "note 0x6e with descriptor"},
		"two, of rank 1":      {"", 3, handMemory(t, 'm', 2, 0, 1, 1), "with 0x1 at word 4, must be 0x2"},
		"eight, too small":    {"", 3, handMemory(t, 'm', 8, 4096, 1, 2), "bytes, must be"},
		"of another epoch":    {"", 3, handMemory(t, 'm', 1, 0, 7, 2), "with 0x7 at word 2, must be 0x1"},
		"a pipe":              {"", 3, handPipe, "what came for shared memory is none"},
		"nothing":             {"", 3, func(c *net.UnixConn, _ int, _ func([]byte, uint64, int)) error { return c.Close() }, "EOF"},
		"of no place on host": {"elsewhere", 2, handMemory(t, 'm', 1, 0, 1, -1), "says it is of another host"},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			before := mappings(t)
			change := overMemory(t, func(_ int, c *collective.Config) { c.Streams = 1 })
			ctx, cancel := context.WithCancel(background(t))
			defer cancel()
			over := make(chan struct{})
			errs := errorsOf(3, func(rank int) error {
				cfg := collective.Config{Rank: rank, Size: 3}
				change(rank, &cfg)
				if rank == 2 {
					letGo, err := collective.Impostor(ctx, cfg, c.host, c.places, c.hand)
					<-over
					letGo()
					return err
				}
				if rank == 0 {
					defer close(over)
					defer cancel() // rank 1 waits for the one that never calls it
				}
				_, err := collective.Join(ctx, cfg)
				return err
			})
			require.ErrorContains(t, errs[0], "rank-2")
			require.ErrorContains(t, errs[0], c.want)
			require.Error(t, errs[1])
			require.Equal(t, before, mappings(t))
		})
	}
}

// A rank that cannot map the other's memory, or hears that the other one cannot, goes on with
// sockets and keeps nothing mapped.
func TestHandOverInVain(t *testing.T) {
	note := func(c *net.UnixConn, note byte, fds ...int) error {
		_, _, err := c.WriteMsgUnix([]byte{note}, unix.UnixRights(fds...), nil)
		return err
	}
	answer := func(c *net.UnixConn, want byte) error { // what comes with it is closed by the system
		var b [1]byte
		if _, _, _, _, err := c.ReadMsgUnix(b[:], nil); err != nil || b[0] != want {
			return fmt.Errorf("note %q, want %q: %w", b[0], want, err)
		}
		return nil
	}
	for name, c := range map[string]struct {
		left   int // descriptors when the memory comes
		other  byte
		answer byte
		shared bool
		want   string
	}{
		"both map":         {left: 9, other: 'm', answer: 'm', shared: true},
		"the other cannot": {left: 9, other: 'n', answer: 'm'},
		"this one cannot":  {left: 0, other: 'm', answer: 'n'},
		"the other ends":   {left: 9, want: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			leakless(t)
			before := mappings(t)
			mine, theirs := socketPair(t)
			shared, err := collective.HandOver(background(t), mine, func(fd int) error {
				free := useUpDescriptors(t, c.left)
				defer free()
				if err := errors.Join(note(theirs, 'm', fd), answer(theirs, 'm')); err != nil {
					return err
				}
				if c.other == 0 {
					return theirs.Close()
				}
				return errors.Join(note(theirs, c.other), answer(theirs, c.answer))
			})
			require.Equal(t, c.shared, shared)
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			require.Equal(t, before, mappings(t))
		})
	}
}

// socketPair returns both ends of a unix socket.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var ends []*net.UnixConn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "")
		c, err := net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		t.Cleanup(func() { _ = c.Close() }) // it may be closed
		ends = append(ends, c.(*net.UnixConn))
	}
	return ends[0], ends[1]
}
