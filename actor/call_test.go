package actor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCallErrors(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		ref := spawn(t, owner, "echo", echo)
		ctx := within(t, 5*time.Second)

		_, err := caller.Call(ctx, ref, testMessage{Text: "fail"})
		require.ErrorIs(t, err, errTest)
		require.ErrorContains(t, err, "refused")
		require.ErrorContains(t, err, "echo@"+owner.Name())

		_, err = caller.Call(ctx, owner.Ref("nobody"), testMessage{})
		require.ErrorIs(t, err, ErrNoProcess)
		require.True(t, Retryable(err))

		short := within(t, 30*time.Millisecond)
		begin := time.Now()
		_, err = caller.Call(short, ref, testMessage{Text: "silent"})
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begin), 2*time.Second)

		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, err = caller.Call(cancelled, ref, testMessage{Text: "silent"})
		require.ErrorIs(t, err, context.Canceled)

		var wrapped *Error
		require.ErrorAs(t, err, &wrapped)
		require.Equal(t, "call", wrapped.Op)

		_, err = caller.Call(ctx, ref, testMessage{Text: "crash"})
		require.ErrorIs(t, err, ErrNoProcess)
		require.ErrorIs(t, err, errTest)
	})
}

func TestPanicDoesNotKillTheProgram(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		ref := spawn(t, owner, "echo", echo)
		_, err := caller.Call(within(t, 5*time.Second), ref, testMessage{Text: "panic"})
		require.ErrorIs(t, err, ErrNoProcess)
		require.ErrorIs(t, err, ErrPanic)
		require.ErrorContains(t, err, "as asked")
	})
}

func TestMessageOverBound(t *testing.T) {
	a, b := pair(t)
	ref := spawn(t, b, "echo", echo)
	ctx := within(t, 5*time.Second)
	big := testMessage{Text: strings.Repeat("x", MaxMessageBytes-16)}
	got, err := a.Call(ctx, ref, big)
	require.NoError(t, err)
	require.Equal(t, big, got)
	big.Text += strings.Repeat("y", 100)
	for _, err := range []error{
		func() error { _, err := a.Call(ctx, ref, big); return err }(),
		a.Cast(ctx, ref, big),
		a.TryCast(ref, big),
	} {
		require.ErrorIs(t, err, ErrTooLarge)
		require.ErrorContains(t, err, "65536")
		require.ErrorContains(t, err, "65627")
		require.ErrorContains(t, err, "test.message")
	}
	reply := spawn(t, b, "big", func(c *Context, _ any) error {
		c.Reply(big)
		return nil
	})
	_, err = a.Call(ctx, reply, nil)
	require.ErrorIs(t, err, ErrTooLarge)
	local := spawn(t, a, "local", echo)
	_, err = a.Call(ctx, local, big)
	require.NoError(t, err, "within a node nothing is encoded")
}

type testUnknown struct{ A int }

func TestUnknownType(t *testing.T) {
	a, b := pair(t)
	ref := spawn(t, b, "echo", echo)
	ctx := within(t, 5*time.Second)
	_, err := a.Call(ctx, ref, testUnknown{})
	require.ErrorIs(t, err, ErrUnknownType)
	require.ErrorContains(t, err, "testUnknown")
	require.NoError(t, a.Register("test.unknown", testUnknown{}))
	_, err = a.Call(ctx, ref, testUnknown{})
	require.ErrorIs(t, err, ErrUnknownType, "the receiver does not know it")
	require.ErrorContains(t, err, "test.unknown")
	require.NoError(t, b.Register("test.unknown", testUnknown{}))
	got, err := a.Call(ctx, ref, testUnknown{A: 3})
	require.NoError(t, err)
	require.Equal(t, testUnknown{A: 3}, got)
}

func TestRegister(t *testing.T) {
	n := startNode(t, Config{})
	require.NoError(t, n.Register("test.message", testMessage{}), "again")
	require.Error(t, n.Register("test.message", testUnknown{}), "name taken")
	require.Error(t, n.Register("test.other", testMessage{}), "type taken")
	require.Error(t, n.Register("test.nil", nil))
	require.Error(t, n.Register("", testUnknown{}))
	require.Error(t, n.Register("test.func", func() {}))
	require.NoError(t, n.RegisterError("test.sentinel", errTest), "again")
	require.Error(t, n.RegisterError("test.sentinel", errors.New("other")))
	require.Error(t, n.RegisterError("test.nil", nil))
}

func TestFromAndDeferredReply(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		requests := make(chan *Request, 1)
		ref := spawn(t, owner, "later", func(c *Context, _ any) error {
			requests <- c.Request()
			return nil
		})
		ctx := within(t, 5*time.Second)
		client := spawn(t, caller, "client", func(c *Context, msg any) error {
			v, err := c.Call(ctx, ref, msg)
			if err != nil {
				c.Request().Fail(err)
				return nil
			}
			c.Reply(v)
			return nil
		})
		go func() {
			r := <-requests
			from := r.From()
			r.Reply(from)
			r.Reply("second") // ignored
			r.Fail(errTest)
		}()
		got, err := caller.Call(ctx, client, "x")
		require.NoError(t, err)
		require.Equal(t, client, got)
	})
}

func TestRequestsFailWhenActorEnds(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		ctx := within(t, 5*time.Second)
		const calls = 8
		kept := make(chan struct{}, calls)
		ref := spawn(t, owner, "keeper", func(c *Context, msg any) error {
			if msg == "end" {
				return ErrStop
			}
			kept <- struct{}{}
			return nil
		})
		errs := make(chan error, calls)
		for range calls {
			go func() {
				_, err := caller.Call(ctx, ref, "keep")
				errs <- err
			}()
		}
		for range calls {
			<-kept
		}
		require.NoError(t, caller.Cast(ctx, ref, "end"))
		for range calls {
			require.ErrorIs(t, <-errs, ErrNoProcess)
		}
	})
}

func TestLateReplyIsDropped(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		requests := make(chan *Request, 4)
		ref := spawn(t, owner, "late", func(c *Context, msg any) error {
			if msg == "late" {
				requests <- c.Request()
				return nil
			}
			c.Reply(msg)
			return nil
		})
		_, err := caller.Call(within(t, 20*time.Millisecond), ref, "late")
		require.ErrorIs(t, err, ErrTimeout)
		(<-requests).Reply("too late")
		for i := range 20 { // none of them gets the late answer
			got, err := caller.Call(within(t, 5*time.Second), ref, i)
			require.NoError(t, err)
			require.Equal(t, i, got)
		}
	})
}

func TestExpiredCallIsNotHandled(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		gate := make(chan struct{})
		var handled atomic.Int64
		ref := spawn(t, owner, "gate", func(c *Context, msg any) error {
			if msg == "wait" {
				<-gate
				return nil
			}
			handled.Add(1)
			c.Reply(nil)
			return nil
		})
		ctx := within(t, 5*time.Second)
		require.NoError(t, caller.Cast(ctx, ref, "wait"))
		_, err := caller.Call(within(t, 30*time.Millisecond), ref, "expires")
		require.ErrorIs(t, err, ErrTimeout)
		time.AfterFunc(50*time.Millisecond, func() { close(gate) }) // the receiver's clock starts later
		_, err = caller.Call(ctx, ref, "in time")
		require.NoError(t, err)
		require.EqualValues(t, 1, handled.Load())
	})
}

func TestCallToSelfFails(t *testing.T) {
	n := startNode(t, Config{})
	ref := spawn(t, n, "self", func(c *Context, _ any) error {
		_, err := c.Call(c.Context(), c.Self(), "x")
		c.Request().Fail(err)
		return nil
	})
	_, err := n.Call(within(t, 5*time.Second), ref, nil)
	require.ErrorContains(t, err, "itself")
}

func TestOrderPerSender(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		const senders, each = 4, 20_000
		ctx := within(t, 60*time.Second)
		next := make([]int64, senders)
		done := make(chan error, 1)
		total := 0
		ref := spawn(t, owner, "order", func(c *Context, msg any) error {
			m := msg.(testMessage)
			var s int
			_, _ = fmt.Sscan(m.Text, &s)
			if m.Seq != next[s] {
				done <- fmt.Errorf("sender %d: got %d, want %d", s, m.Seq, next[s])
				return ErrStop
			}
			next[s]++
			if total++; total == senders*each {
				done <- nil
			}
			return nil
		})
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for i := range each {
					if err := caller.Cast(ctx, ref, testMessage{Seq: int64(i), Text: fmt.Sprint(s)}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-ctx.Done():
			t.Fatalf("got %v of %d each", next, each)
		}
	})
}

func TestSpawn(t *testing.T) {
	n := startNode(t, Config{})
	ctx := within(t, 5*time.Second)
	ref := spawn(t, n, "one", echo)
	require.Equal(t, n.Ref("one"), ref)
	_, err := n.Spawn(ctx, "one", ActorFunc(echo), Options{})
	require.ErrorIs(t, err, ErrNameTaken)
	for i := range 50 { // the name is free again as soon as Stop returns
		require.NoError(t, n.Stop(ctx, ref))
		_, err := n.Call(ctx, ref, i)
		require.ErrorIs(t, err, ErrNoProcess)
		spawn(t, n, "one", echo)
	}
	for _, name := range []string{"~system", "a b", strings.Repeat("x", 129), "ü"} {
		_, err = n.Spawn(ctx, name, ActorFunc(echo), Options{})
		require.Error(t, err, name)
	}
	_, err = n.Spawn(ctx, "nil", nil, Options{})
	require.Error(t, err)
	_, err = n.Spawn(ctx, "bound", ActorFunc(echo), Options{MailboxSize: -1})
	require.ErrorContains(t, err, "-1")
	unnamed := spawn(t, n, "", echo)
	require.NotEmpty(t, unnamed.Name)
}

// lifecycle records its hooks.
type lifecycle struct {
	start   error
	stopped chan error
}

func (l *lifecycle) Started(*Context) error            { return l.start }
func (l *lifecycle) Stopped(_ *Context, reason error)  { l.stopped <- reason }
func (l *lifecycle) Receive(c *Context, msg any) error { return echo(c, msg) }

func TestHooks(t *testing.T) {
	n := startNode(t, Config{})
	ctx := within(t, 5*time.Second)
	l := &lifecycle{stopped: make(chan error, 1)}
	ref, err := n.Spawn(ctx, "hooks", l, Options{})
	require.NoError(t, err)
	require.NoError(t, n.Stop(ctx, ref))
	require.NoError(t, <-l.stopped)

	_, err = n.Spawn(ctx, "hooks", l, Options{})
	require.NoError(t, err)
	_, err = n.Call(ctx, ref, testMessage{Text: "crash"})
	require.ErrorIs(t, err, errTest)
	require.ErrorIs(t, <-l.stopped, errTest)

	l.start = errTest
	_, err = n.Spawn(ctx, "hooks", l, Options{})
	require.ErrorIs(t, err, errTest)
}

func TestStopHandlesWhatWasSentBefore(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		var handled atomic.Int64
		ref := spawn(t, owner, "counter", func(c *Context, _ any) error {
			handled.Add(1)
			return nil
		})
		ctx := within(t, 10*time.Second)
		for i := range 1000 {
			require.NoError(t, caller.Cast(ctx, ref, i))
		}
		require.NoError(t, caller.Stop(ctx, ref))
		require.EqualValues(t, 1000, handled.Load())
		require.ErrorIs(t, caller.Stop(ctx, ref), ErrNoProcess)
	})
}

func TestStopKillsAtDeadline(t *testing.T) {
	n := startNode(t, Config{})
	entered := make(chan struct{})
	ref := spawn(t, n, "stuck", func(c *Context, _ any) error {
		close(entered)
		<-c.Context().Done()
		return nil
	})
	require.NoError(t, n.TryCast(ref, nil))
	<-entered
	require.ErrorIs(t, n.Stop(within(t, 20*time.Millisecond), ref), ErrTimeout)
	require.Eventually(t, func() bool { return n.process("stuck") == nil }, 5*time.Second, time.Millisecond)
}

func TestSendAfter(t *testing.T) {
	n := startNode(t, Config{})
	got := make(chan any, 4)
	ref := spawn(t, n, "timer", func(c *Context, msg any) error {
		if msg == "begin" {
			cancel := c.SendAfter(time.Hour, "never")
			require.True(t, cancel())
			c.SendAfter(time.Millisecond, "own")
			return nil
		}
		got <- msg
		return nil
	})
	require.NoError(t, n.TryCast(ref, "begin"))
	require.Equal(t, "own", <-got)
}
