package ps

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilentRunHidesNobody: an earlier run that does not answer keeps none of the others from
// being found to have ended.
func TestSilentRunHidesNobody(t *testing.T) {
	silent := silentAddr(t)
	p := placementOn(t, memoryStore(t))
	c := &Coordinator{ctx: t.Context(), places: p}
	for i, addr := range []string{leftAddr(t), silent, leftAddr(t), "now"} {
		require.NoError(t, p.remember(t.Context(), serverInfo{ID: "s", Run: uint64(i + 1), Addr: addr}))
	}
	require.Len(t, p.where("s").Before, 3)
	require.False(t, c.succeeds("s"))
	require.Equal(t, []earlierRun{{2, silent, ""}}, p.where("s").Before)
}

// leftAddr is an address where nobody listens any more.
func leftAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// silentAddr is an address whose machine says nothing about who listens there: its queue of
// connections is full.
func silentAddr(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for range 16 {
		nc, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = nc.Close() })
	}
	require.Fail(t, "connections are taken without end")
	return ""
}
