package collective_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/elasticps/elasticps/collective"
)

// raiseLoopback gives a new network namespace the loopback addresses.
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback)
}

// listenIn listens in the network namespace of a process.
func listenIn(pid int, address string) (net.Listener, error) {
	type result struct {
		net.Listener
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread of another namespace ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			done <- result{nil, err}
			return
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- result{nil, err}
			return
		}
		l, err := net.Listen("tcp", address)
		done <- result{l, err}
	}()
	r := <-done
	return r.Listener, r.err
}

// pass leads connections that arrive at a listener on to an address, until the listener ends.
func pass(l net.Listener, address string) {
	for {
		a, err := l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", address)
		if err != nil {
			_ = a.Close() // the other end sees it
			continue
		}
		for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1]) // ends with either
				_ = pair[0].Close()
			}()
		}
	}
}

// Ranks that say they are of one host and do not reach each other's unix sockets, as in
// containers of one name, connect by TCP. Abstract sockets belong to a network namespace.
func TestAnotherNetworkNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making a network namespace needs root")
	}
	for _, over := range []string{"memory", "unix"} {
		t.Run(over, func(t *testing.T) {
			addresses := freeAddresses(t, 2)
			other := startRank(t, 1, addresses, over, func(c *exec.Cmd) {
				c.Env = append(c.Env, "COLLECTIVE_TEST_ALONE=1")
				c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			})
			other.expect(t, "up", time.Now().Add(patience))
			l, err := listenIn(other.cmd.Process.Pid, addresses[0])
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			go pass(l, addresses[0])
			g, err := collective.Join(background(t), collective.Config{
				Rank: 0, Size: 2, Addresses: addresses, SocketsOnly: over == "unix", Secret: []byte("of the test"), NoCalibration: true,
			})
			require.NoError(t, err)
			defer g.Close()
			other.expect(t, "joined", time.Now().Add(patience))
			for range 3 {
				require.NoError(t, sumOnes(background(t), g, 1<<20))
			}
			require.Positive(t, g.Traffic().Sent, "memory is not shared")
			require.NoError(t, other.cmd.Process.Kill())
			for err == nil {
				err = sumOnes(background(t), g, 1<<20)
			}
			require.ErrorIs(t, err, collective.ErrRankLost)
		})
	}
}

// A unix socket that is nobody's, or of a rank of another group, is gone around by TCP.
func TestSocketOfAnotherRank(t *testing.T) {
	for whose, want := range map[string]string{
		"its own": "unix, shares", "another's": "tcp", "nobody's": "tcp", "nobody's, nor the address": "",
	} {
		t.Run(whose, func(t *testing.T) {
			leakless(t)
			got, err := collective.Reach(background(t), collective.Config{Store: memoryStore(t)}, whose)
			require.Equal(t, want, got)
			if want != "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, unix.ECONNREFUSED)
			require.ErrorContains(t, err, "127.0.0.1:1")
			require.ErrorContains(t, err, "by its unix socket")
		})
	}
}
