package actor

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/starved"
)

// inFlight starts calls that are never answered and returns their errors.
func inFlight(t *testing.T, n *Node, to Ref, calls int) chan error {
	t.Helper()
	ctx := within(t, 30*time.Second)
	before := n.calls.len()
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := n.Call(ctx, to, testMessage{Text: "silent"})
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { return n.calls.len() == before+calls }, 5*time.Second, time.Millisecond)
	return errs
}

func (t *callTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}

func TestKilledPeerFailsCallsAtOnce(t *testing.T) {
	const bound = 10 * time.Millisecond
	best := time.Hour
	// One scheduling hiccup must not fail the test, nor a machine that has many.
	for tries := 0; tries < 3 || tries < 10 && best >= bound; tries++ {
		n, child := withChild(t, Config{})
		errs := inFlight(t, n, Ref{Node: "child", Name: "echo"}, 100)
		begin := time.Now()
		require.NoError(t, child.cmd.Process.Signal(syscall.SIGKILL))
		for range 100 {
			require.ErrorIs(t, <-errs, ErrNodeDown)
		}
		best = min(best, time.Since(begin))
	}
	t.Logf("100 calls in flight failed %v after SIGKILL", best)
	require.Less(t, best, bound)
}

func TestStoppedPeerIsSuspected(t *testing.T) {
	down := make(chan error, 1)
	n, child := withChild(t, Config{Observe: Observer{PeerDown: func(_ string, err error) { down <- err }}})
	errs := inFlight(t, n, Ref{Node: "child", Name: "echo"}, 10)
	m := starved.Watch(t)
	require.NoError(t, child.cmd.Process.Signal(syscall.SIGSTOP))
	defer func() { _ = child.cmd.Process.Signal(syscall.SIGCONT) }()
	for range 10 {
		require.ErrorIs(t, <-errs, ErrNodeDown)
	}
	took := m.Took()
	t.Logf("calls in flight failed %v after SIGSTOP", took)
	m.Less(took, defaultSuspicion+2*defaultHeartbeat+250*time.Millisecond)
	require.Greater(t, took, defaultSuspicion-defaultHeartbeat-50*time.Millisecond)
	require.ErrorContains(t, <-down, "suspicion time")
	_, err := n.Call(within(t, 300*time.Millisecond), Ref{Node: "child", Name: "echo"}, "x")
	require.Error(t, err, "it does not answer the dial either")
}

func TestPeerThatContinuesIsDialledAgain(t *testing.T) {
	n, child := withChild(t, Config{})
	require.NoError(t, child.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool { return len(n.Peers()) == 0 }, 5*time.Second, 5*time.Millisecond)
	require.NoError(t, child.cmd.Process.Signal(syscall.SIGCONT))
	ref := Ref{Node: "child", Name: "echo"}
	require.Eventually(t, func() bool {
		got, err := n.Call(within(t, time.Second), ref, "x")
		return err == nil && got == "x"
	}, 10*time.Second, 10*time.Millisecond)
}

// The connection drops after the call was handled, before the answer: the repetition
// is answered from memory.
func TestRetryIsExecutedOnce(t *testing.T) {
	a, b := pair(t)
	var executed atomic.Int64
	ref := spawn(t, b, "once", func(c *Context, msg any) error {
		executed.Add(1)
		if msg == "drop" {
			c.Request().conn.fail(errTest)
		}
		c.Reply(executed.Load())
		return nil
	})
	for i := range 20 {
		got, err := a.Call(within(t, 10*time.Second), ref, "drop", WithRetry())
		require.NoError(t, err)
		require.EqualValues(t, i+1, got)
		require.EqualValues(t, i+1, executed.Load())
	}
	_, err := a.Call(within(t, 10*time.Second), ref, "drop")
	require.ErrorIs(t, err, ErrNodeDown, "without WithRetry it fails")
}

// The connection drops while the call is being handled: the repetition waits for the
// same execution.
func TestRetryJoinsTheExecution(t *testing.T) {
	a, b := pair(t)
	requests := make(chan *Request, 10)
	ref := spawn(t, b, "later", func(c *Context, _ any) error {
		requests <- c.Request()
		return nil
	})
	answers := make(chan any, 1)
	go func() {
		v, err := a.Call(within(t, 10*time.Second), ref, "x", WithRetry())
		if err != nil {
			v = err
		}
		answers <- v
	}()
	r := <-requests
	first := a.livePeer("b")
	first.fail(errTest)
	require.Eventually(t, func() bool {
		c := a.livePeer("b")
		return c != nil && c != first
	}, 5*time.Second, time.Millisecond)
	r.Reply("done")
	require.Equal(t, "done", <-answers)
	require.Empty(t, requests)
}

func TestRetryMemoryIsBounded(t *testing.T) {
	a, b := pair(t)
	ref := spawn(t, b, "echo", echo)
	ctx := within(t, 60*time.Second)
	long := within(t, time.Hour)
	for i := range maxMemos {
		_, err := a.Call(long, ref, i, WithRetry())
		require.NoError(t, err)
	}
	_, err := a.Call(within(t, 50*time.Millisecond), ref, "one more", WithRetry())
	require.ErrorIs(t, err, ErrMailboxFull)
	_, err = a.Call(ctx, ref, "without")
	require.NoError(t, err)
}

func TestRestartedPeerFailsRetry(t *testing.T) {
	a := startNode(t, Config{Name: "a"})
	b := startNode(t, Config{Name: "b"})
	_, err := a.Connect(within(t, 5*time.Second), b.Addr())
	require.NoError(t, err)
	entered := make(chan struct{}, 1)
	ref := spawn(t, b, "silent", func(*Context, any) error {
		entered <- struct{}{}
		return nil
	})
	errs := make(chan error, 1)
	go func() {
		_, err := a.Call(within(t, 10*time.Second), ref, "x", WithRetry())
		errs <- err
	}()
	<-entered
	addr := b.Addr()
	b.livePeer("a").fail(errTest)
	require.NoError(t, b.Close())
	b2 := startNode(t, Config{Name: "b", Listen: addr})
	spawn(t, b2, "silent", func(*Context, any) error { return nil })
	err = <-errs
	require.Error(t, err) // either it heard that the actor stopped, or that the node is another
	require.True(t, Retryable(err), err)
}

func TestMailboxOverflowIsVisible(t *testing.T) {
	for _, place := range []string{"local", "remote"} {
		t.Run(place, func(t *testing.T) {
			var full atomic.Int64
			a := startNode(t, Config{Name: "a", Observe: Observer{MailboxFull: func(Ref) { full.Add(1) }}})
			owner := a
			if place == "remote" {
				owner = startNode(t, Config{Name: "b"})
				_, err := a.Connect(within(t, 5*time.Second), owner.Addr())
				require.NoError(t, err)
			}
			gate := make(chan struct{})
			handled := 0
			ref, err := owner.Spawn(within(t, 5*time.Second), "gate", ActorFunc(func(c *Context, _ any) error {
				<-gate
				handled++
				if c.Request() != nil {
					c.Reply(handled)
				}
				return nil
			}), Options{MailboxSize: 100})
			require.NoError(t, err)
			sent := 0
			for {
				ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
				err := a.Cast(ctx, ref, sent)
				cancel()
				if err != nil {
					require.ErrorIs(t, err, ErrTimeout)
					break
				}
				sent++
				require.Less(t, sent, 1000)
			}
			require.GreaterOrEqual(t, sent, 100)
			require.ErrorIs(t, a.TryCast(ref, 0), ErrMailboxFull)
			require.Positive(t, full.Load())
			close(gate)
			require.Eventually(t, func() bool {
				v, err := a.Call(within(t, 5*time.Second), ref, "count")
				return err == nil && v == sent+1
			}, 5*time.Second, time.Millisecond)
		})
	}
}

// 200,000 casts to a consumer that is slower than the sender: none is lost.
func TestCastsToSlowConsumer(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		const casts = 200_000
		ctx := within(t, 120*time.Second)
		done := make(chan error, 1)
		var next int64
		ref := spawn(t, owner, "slow", func(_ *Context, msg any) error {
			if seq := msg.(testMessage).Seq; seq != next {
				done <- fmt.Errorf("got %d, want %d", seq, next)
				return ErrStop
			}
			if next++; next == casts {
				done <- nil
			}
			for end := time.Now().Add(5 * time.Microsecond); time.Now().Before(end); {
			}
			return nil
		})
		for i := range casts {
			require.NoError(t, caller.Cast(ctx, ref, testMessage{Seq: int64(i)}))
		}
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-ctx.Done():
			t.Fatalf("%d of %d arrived", next, casts)
		}
	})
}

// A slow actor must not hold up another one on the same connection.
func TestSlowActorHoldsUpNobodyElse(t *testing.T) {
	a, b := pair(t)
	gate := make(chan struct{})
	slow := spawn(t, b, "slow", func(*Context, any) error { <-gate; return nil })
	quick := spawn(t, b, "quick", echo)
	short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	var err error
	for err == nil {
		err = a.Cast(short, slow, "x")
	}
	require.ErrorIs(t, err, ErrTimeout)
	for i := range 1000 {
		got, err := a.Call(within(t, 5*time.Second), quick, i)
		require.NoError(t, err)
		require.Equal(t, i, got)
	}
	close(gate)
}

func TestLostCastsAreTold(t *testing.T) {
	lost := make(chan uint64, 10)
	a := startNode(t, Config{Name: "a", Observe: Observer{CastLost: func(_ Ref, n uint64) { lost <- n }}})
	b := startNode(t, Config{Name: "b"})
	_, err := a.Connect(within(t, 5*time.Second), b.Addr())
	require.NoError(t, err)
	ctx := within(t, 5*time.Second)
	require.ErrorIs(t, a.Cast(ctx, b.Ref("nobody"), 1), ErrNoProcess)
	gate := make(chan struct{})
	ref := spawn(t, b, "dies", func(*Context, any) error { <-gate; return errTest })
	for i := range 100 {
		require.NoError(t, a.Cast(ctx, ref, i))
	}
	close(gate)
	require.EqualValues(t, 99, <-lost)
	require.ErrorIs(t, a.Cast(ctx, ref, 1), ErrNoProcess)
	got := make(chan any, 1)
	spawn(t, b, "dies", func(_ *Context, msg any) error { got <- msg; return nil })
	require.NoError(t, a.Cast(ctx, ref, 2), "its successor gets later ones")
	require.Equal(t, 2, <-got)
}

func TestWaitingCastsFailWithTheConnection(t *testing.T) {
	a, b := pair(t)
	gate := make(chan struct{})
	defer close(gate)
	ref := spawn(t, b, "gate", func(*Context, any) error { <-gate; return nil })
	errs := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			err = a.Cast(within(t, 10*time.Second), ref, "x")
		}
		errs <- err
	}()
	c := a.livePeer("b")
	require.Eventually(t, func() bool {
		f := c.flows.lookup("gate")
		if f == nil {
			return false
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.sent > 0 && f.credit == 0
	}, 5*time.Second, time.Millisecond)
	c.fail(errTest)
	err := <-errs
	require.ErrorIs(t, err, ErrNodeDown)
}

func TestRTT(t *testing.T) {
	a, _ := pair(t)
	_, ok := a.RTT("nobody")
	require.False(t, ok)
	require.Eventually(t, func() bool { _, ok := a.RTT("b"); return ok }, 5*time.Second, time.Millisecond)
	rtt, _ := a.RTT("b")
	require.Positive(t, rtt)
	require.Less(t, rtt, time.Second)
	peers := a.Peers()
	require.Len(t, peers, 1)
	require.Equal(t, "b", peers[0].Name)
	require.Positive(t, peers[0].RTT)
}
