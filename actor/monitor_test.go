package actor

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watcher does what it is told, and passes on what it hears.
type watcher struct {
	heard chan any
	last  chan error
}

type order func(c *Context) error

func (w *watcher) Receive(c *Context, msg any) error {
	if o, ok := msg.(order); ok {
		c.Request().Fail(o(c))
		return nil
	}
	w.heard <- msg
	return nil
}

func (w *watcher) Stopped(_ *Context, reason error) { w.last <- reason }

func (w *watcher) expect(t *testing.T) any {
	t.Helper()
	select {
	case msg := <-w.heard:
		return msg
	case <-time.After(5 * time.Second):
		t.Fatal("nothing heard within 5s")
		return nil
	}
}

func (w *watcher) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-w.last:
		return err
	case <-time.After(5 * time.Second):
		t.Fatal("not ended within 5s")
		return nil
	}
}

func spawnWatcher(t *testing.T, n *Node, name string, o Options) *watcher {
	t.Helper()
	w := &watcher{heard: make(chan any, 1000), last: make(chan error, 1)}
	_, err := n.Spawn(within(t, 5*time.Second), name, w, o)
	require.NoError(t, err)
	return w
}

// tell runs f as the actor of that name and waits for it.
func tell(t *testing.T, n *Node, name string, f func(c *Context) error) {
	t.Helper()
	_, err := n.Call(within(t, 5*time.Second), n.Ref(name), order(func(c *Context) error {
		if err := f(c); err != nil {
			return err
		}
		return errTest // Fail needs one
	}))
	require.ErrorIs(t, err, errTest)
}

func TestMonitor(t *testing.T) {
	eachPlace(t, func(t *testing.T, near, far *Node) {
		w := spawnWatcher(t, near, "watcher", Options{})
		ctx := within(t, 10*time.Second)
		monitor := func(ref Ref) {
			tell(t, near, "watcher", func(c *Context) error { return c.Monitor(ref) })
		}
		down := func(ref Ref) error {
			msg := w.expect(t)
			require.IsType(t, Down{}, msg)
			require.Equal(t, ref, msg.(Down).Ref)
			return msg.(Down).Err
		}
		nobody := far.Ref("nobody")
		monitor(nobody)
		require.ErrorIs(t, down(nobody), ErrNoProcess)

		ref := spawn(t, far, "target", echo)
		monitor(ref)
		monitor(ref) // once
		require.NoError(t, near.Stop(ctx, ref))
		require.NoError(t, down(ref), "normal")

		spawn(t, far, "target", echo)
		monitor(ref)
		require.NoError(t, near.Cast(ctx, ref, testMessage{Text: "crash"}))
		require.ErrorIs(t, down(ref), errTest)

		spawn(t, far, "target", echo)
		monitor(ref)
		tell(t, near, "watcher", func(c *Context) error { c.Demonitor(ref); return nil })
		require.NoError(t, near.Stop(ctx, ref))
		monitor(nobody)
		require.ErrorIs(t, down(nobody), ErrNoProcess, "and nothing of the other")
		require.Empty(t, w.heard)
	})
}

// A process that ends while it is being monitored must be reported, once.
func TestMonitorRace(t *testing.T) {
	eachPlace(t, func(t *testing.T, near, far *Node) {
		w := spawnWatcher(t, near, "watcher", Options{})
		for i := range 200 {
			ref := spawn(t, far, fmt.Sprint("target-", i), echo)
			require.NoError(t, far.TryCast(ref, testMessage{Text: "crash"}))
			tell(t, near, "watcher", func(c *Context) error { return c.Monitor(ref) })
			require.Equal(t, ref, w.expect(t).(Down).Ref)
		}
		require.Empty(t, w.heard)
	})
}

// A connection that ends while a process behind it is being monitored must be reported
// too, or the end of the process over the next connection: one of them, once.
func TestMonitorOverFailingConnection(t *testing.T) {
	a, b := pair(t)
	w := spawnWatcher(t, a, "watcher", Options{})
	for i := range 300 {
		ref := spawn(t, b, fmt.Sprint("target-", i), echo)
		conn, err := a.peer(within(t, 5*time.Second), "b")
		require.NoError(t, err)
		failed := make(chan struct{})
		go func() {
			defer close(failed)
			for range i % 40 {
				runtime.Gosched()
			}
			conn.fail(errTest)
		}()
		tell(t, a, "watcher", func(c *Context) error { return c.Monitor(ref) })
		<-failed
		require.NoError(t, b.Stop(within(t, 5*time.Second), ref))
		require.Equal(t, ref, w.expect(t).(Down).Ref)
	}
	require.Empty(t, w.heard)
}

// A node that closes has told who watches its processes that they ended, and how, before its
// connections close.
func TestEndOfProcessesIsToldBeforeThatOfTheNode(t *testing.T) {
	const rounds, targets = 20, 20
	for range rounds {
		a, b := pair(t)
		w := spawnWatcher(t, a, "watcher", Options{})
		for i := range targets {
			ref := spawn(t, b, fmt.Sprint("target-", i), echo)
			tell(t, a, "watcher", func(c *Context) error { return c.Monitor(ref) })
		}
		_, err := a.Call(within(t, 5*time.Second), b.Ref("target-0"), testMessage{}) // behind the monitors
		require.NoError(t, err)
		require.NoError(t, b.Close())
		for range targets {
			require.NoError(t, w.expect(t).(Down).Err)
		}
		require.NoError(t, a.Close())
	}
}

func TestManyDownsAtOnce(t *testing.T) {
	a, b := pair(t)
	w := spawnWatcher(t, a, "watcher", Options{MailboxSize: 1})
	const targets = 500
	for i := range targets {
		ref := spawn(t, b, fmt.Sprint("target-", i), echo)
		tell(t, a, "watcher", func(c *Context) error { return c.Monitor(ref) })
	}
	b.livePeer("a").fail(errTest)
	seen := map[Ref]bool{}
	for range targets {
		d := w.expect(t).(Down)
		require.ErrorIs(t, d.Err, ErrNodeDown)
		require.False(t, seen[d.Ref])
		seen[d.Ref] = true
	}
}

func TestLink(t *testing.T) {
	eachPlace(t, func(t *testing.T, near, far *Node) {
		ctx := within(t, 10*time.Second)
		link := func(from *Node, name string, to Ref) {
			tell(t, from, name, func(c *Context) error { return c.Link(ctx, to) })
		}
		w := spawnWatcher(t, near, "one", Options{})
		v := spawnWatcher(t, far, "two", Options{})
		link(near, "one", far.Ref("two"))
		tell(t, near, "one", func(c *Context) error { c.p.signal(envelope{msg: &signal{reason: errTest}}); return nil })
		require.ErrorIs(t, w.end(t), errTest)
		require.ErrorIs(t, v.end(t), errTest, "goes with it")

		w = spawnWatcher(t, near, "three", Options{})
		v = spawnWatcher(t, far, "four", Options{TrapExit: true})
		link(far, "four", near.Ref("three"))
		tell(t, near, "three", func(c *Context) error { c.p.signal(envelope{msg: &signal{reason: errTest}}); return nil })
		require.ErrorIs(t, w.end(t), errTest)
		exit := v.expect(t).(Exit)
		require.Equal(t, near.Ref("three"), exit.Ref)
		require.ErrorIs(t, exit.Err, errTest)

		spawnWatcher(t, near, "five", Options{})
		v = spawnWatcher(t, far, "six", Options{})
		link(near, "five", far.Ref("six"))
		require.NoError(t, near.Stop(ctx, near.Ref("five")))
		tell(t, far, "six", func(*Context) error { return nil }) // a normal end does not propagate
		require.Empty(t, v.last)
	})
}

func TestUnlink(t *testing.T) {
	a, b := pair(t)
	ctx := within(t, 10*time.Second)
	w := spawnWatcher(t, a, "one", Options{})
	v := spawnWatcher(t, b, "two", Options{})
	tell(t, a, "one", func(c *Context) error { return c.Link(ctx, b.Ref("two")) })
	tell(t, a, "one", func(c *Context) error { return c.Unlink(ctx, b.Ref("two")) })
	tell(t, a, "one", func(c *Context) error { c.p.signal(envelope{msg: &signal{reason: errTest}}); return nil })
	require.ErrorIs(t, w.end(t), errTest)
	require.Eventually(t, func() bool { return a.process("one") == nil }, 5*time.Second, time.Millisecond, "its name is free a little later")
	tell(t, b, "two", func(*Context) error { return nil })
	require.Empty(t, v.last)
	tell(t, b, "two", func(c *Context) error {
		err := c.Link(ctx, a.Ref("one"))
		require.ErrorIs(t, err, ErrNoProcess)
		return nil
	})
}
