package collective_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
)

// waitForOne calls an all-reduce in which all wait for rank 1, which acts when it is told to by
// its standard input.
func waitForOne(ctx context.Context, g *collective.Group, act string) error {
	elements := 8 << 20 // more than the system keeps between two ranks
	if collective.RaceEnabled {
		elements = 1 << 20 // the race detector stands still while it makes room for so many
	}
	if g.Rank() != 1 {
		go sayDetached(ctx)
		return sumOnes(ctx, g, elements)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	received := make(chan error, 1)
	go func() { received <- g.Recv(ctx, collective.Of(make([]byte, 1)), 0) }()
	sayDetached(ctx)
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	var err error
	switch act { // it goes on for a moment after a signal
	case "kill":
		err = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop":
		err = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "context":
		cancel()
	case "abort":
		g.Abort()
	case "close":
		err = g.Close()
	}
	return errors.Join(err, <-received)
}

// sayDetached says when a goroutine waits in the kernel for what comes from another rank.
func sayDetached(ctx context.Context) {
	stacks := make([]byte, 1<<20)
	for ctx.Err() == nil {
		if n := runtime.Stack(stacks, true); strings.Contains(string(stacks[:n]), "stream.(*detached).read(") {
			fmt.Println("waits")
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Ranks that wait in the kernel for one that dies, stops, leaves, aborts or gives up know it
// within a second (of the time that a rank may be silent, if it stops), and those that are left
// go on together.
func TestProcessesThatWaitInTheKernel(t *testing.T) {
	for _, over := range []string{"unix", "tcp"} {
		for act, c := range map[string]struct {
			wait  time.Duration
			error string
			left  int
		}{
			"kill":    {soon, "lost [1]", 3},
			"stop":    {quiet + soon, "lost [1]", 3},
			"close":   {soon, "lost [1]", 3},
			"abort":   {soon, "lost [] ", 4},
			"context": {soon, "lost [] ", 4},
		} {
			t.Run(over+", "+act, func(t *testing.T) {
				addresses := freeAddresses(t, 4)
				var ranks []*process
				var tell *os.File
				for rank := range addresses {
					ranks = append(ranks, startRank(t, rank, addresses, over, func(cmd *exec.Cmd) {
						// One processor for each: it shares that one with itself, on any machine.
						cmd.Env = append(cmd.Env, "COLLECTIVE_TEST_ACT="+act, "GOMAXPROCS=1")
						if rank != 1 {
							return
						}
						r, w, err := os.Pipe()
						require.NoError(t, err)
						cmd.Stdin, tell = r, w
						t.Cleanup(func() { _, _ = r.Close(), w.Close() })
					}))
				}
				for _, line := range []string{"joined", "waits"} {
					for _, p := range ranks {
						p.expect(t, line, time.Now().Add(patience))
					}
				}
				begin := time.Now()
				_, err := tell.Write([]byte("x"))
				require.NoError(t, err)
				for rank, p := range ranks {
					if rank != 1 || c.left == 4 {
						p.expect(t, c.error, begin.Add(c.wait))
					}
				}
				t.Log("all know after", time.Since(begin))
				for rank, p := range ranks {
					if rank != 1 || c.left == 4 {
						p.expect(t, fmt.Sprint("goes on ", c.left), time.Now().Add(patience))
					}
				}
			})
		}
	}
}
