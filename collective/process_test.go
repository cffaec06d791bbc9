package collective_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/internal/starved"
)

// TestMain is also the program of the ranks that run as processes of their own.
func TestMain(m *testing.M) {
	if os.Getenv("COLLECTIVE_TEST_ALONE") != "" { // in a network namespace that has nothing yet
		if err := raiseLoopback(); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		fmt.Println("up")
	}
	if rank, ok := os.LookupEnv("COLLECTIVE_TEST_RANK"); ok {
		if err := rankProcess(rank, strings.Split(os.Getenv("COLLECTIVE_TEST_ADDRESSES"), ",")); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// rankProcess makes calls until a rank is lost, goes on without it, and says so.
func rankProcess(text string, addresses []string) error {
	rank, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	over, act := os.Getenv("COLLECTIVE_TEST_OVER"), os.Getenv("COLLECTIVE_TEST_ACT")
	cfg := collective.Config{
		Rank: rank, Size: len(addresses), Addresses: addresses, TCPOnly: over == "tcp", SocketsOnly: over == "unix",
		Secret: []byte("of the test"), NoCalibration: true,
	}
	if act == "stop" {
		cfg.PeerTimeout = quiet
	}
	g, err := collective.Join(ctx, cfg)
	if err != nil {
		return err
	}
	fmt.Println("joined")
	if act != "" {
		err = waitForOne(ctx, g, act)
	}
	for err == nil {
		err = sumOnes(ctx, g, 1<<20)
	}
	fmt.Println("lost", collective.Lost(err), err)
	if g, err = g.Shrink(ctx, collective.Lost(err)...); err != nil {
		return err
	}
	if err := sumOnes(ctx, g, 1<<20); err != nil {
		return err
	}
	fmt.Println("goes on", g.Size())
	return g.Close()
}

// quiet is how long a rank that stops may be silent.
const quiet = 3 * time.Second

// process is a rank that runs as a process.
type process struct {
	cmd   *exec.Cmd
	lines chan string
}

func startRank(t *testing.T, rank int, addresses []string, over string, change ...func(*exec.Cmd)) *process {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprint("COLLECTIVE_TEST_RANK=", rank), "COLLECTIVE_TEST_ADDRESSES="+strings.Join(addresses, ","), "COLLECTIVE_TEST_OVER="+over)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	for _, f := range change {
		f(cmd)
	}
	require.NoError(t, cmd.Start())
	p := &process{cmd, make(chan string, 16)}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be over
		_ = cmd.Wait()         // and was killed, some of the time
	})
	return p
}

// expect wants a line that begins so before the deadline.
func (p *process) expect(t *testing.T, begin string, deadline time.Time) {
	t.Helper()
	select {
	case line := <-p.lines:
		require.True(t, strings.HasPrefix(line, begin), "got %q, want %q", line, begin)
	case <-time.After(time.Until(deadline)):
		require.Fail(t, "too late", "want %q", begin)
	}
}

// A process that is killed in the middle of a call is an error on all others within a
// second; they have made a smaller group and a correct sum within two. So it is when the
// host of the rendezvous is killed.
func TestProcessKilled(t *testing.T) {
	for _, over := range []string{"memory", "unix", "tcp"} {
		for _, victim := range []int{0, 2} {
			t.Run(fmt.Sprintf("rank %d, %s", victim, over), func(t *testing.T) {
				addresses := freeAddresses(t, 4)
				var ranks []*process
				for rank := range addresses {
					ranks = append(ranks, startRank(t, rank, addresses, over))
				}
				for _, p := range ranks {
					p.expect(t, "joined", time.Now().Add(patience))
				}
				<-time.After(50 * time.Millisecond) // at no particular moment of a call
				m := starved.Watch(t)
				require.NoError(t, ranks[victim].cmd.Process.Kill())
				for rank, p := range ranks {
					if rank != victim {
						p.expect(t, fmt.Sprintf("lost [%d]", victim), time.Now().Add(patience))
					}
				}
				t.Log("all know after", m.Took())
				m.Less(m.Took(), soon)
				for rank, p := range ranks {
					if rank != victim {
						p.expect(t, "goes on 3", time.Now().Add(patience))
					}
				}
				t.Log("all go on after", m.Took())
				m.Less(m.Took(), 2*soon)
			})
		}
	}
}

// Case 25: a run of which all processes were killed leaves nothing that the next one at the
// same addresses would find.
func TestCase25CrashedRunLeavesNothing(t *testing.T) {
	addresses := freeAddresses(t, 3)
	for range 2 {
		var ranks []*process
		for rank := range addresses {
			ranks = append(ranks, startRank(t, rank, addresses, "memory"))
		}
		for _, p := range ranks {
			p.expect(t, "joined", time.Now().Add(patience))
		}
		for _, p := range ranks {
			require.NoError(t, p.cmd.Process.Kill())
			_ = p.cmd.Wait() // it was killed
		}
	}
	left, err := filepath.Glob("/dev/shm/*elasticps*")
	require.NoError(t, err)
	require.Empty(t, left)
}
