package actor

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// family records the starts and stops of supervised children.
type family struct {
	mu     sync.Mutex
	events []string
	fails  map[string]int // so many starts of that child fail
}

func (f *family) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, fmt.Sprintf(format, args...))
}

// take returns what happened since.
func (f *family) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

func (f *family) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events)
}

func (f *family) child(name string, r Restart) ChildSpec {
	return ChildSpec{Name: name, Restart: r, New: func() Actor { return &sibling{f, name} }}
}

type sibling struct {
	f    *family
	name string
}

func (s *sibling) Started(*Context) error {
	s.f.mu.Lock()
	fail := s.f.fails[s.name] > 0
	if fail {
		s.f.fails[s.name]--
	}
	s.f.mu.Unlock()
	if fail {
		s.f.add("fail %s", s.name)
		return errTest
	}
	s.f.add("start %s", s.name)
	return nil
}

func (s *sibling) Stopped(*Context, error) { s.f.add("stop %s", s.name) }

func (s *sibling) Receive(c *Context, msg any) error {
	if msg == "leave" {
		return ErrStop
	}
	return echo(c, msg)
}

func supervise(t *testing.T, n *Node, spec SupervisorSpec) Ref {
	t.Helper()
	ref, err := n.Supervise(within(t, 5*time.Second), "sup", spec)
	require.NoError(t, err)
	return ref
}

func crash(t *testing.T, n *Node, name string) {
	t.Helper()
	require.NoError(t, n.TryCast(n.Ref(name), testMessage{Text: "crash"}))
}

func TestSupervisorStrategies(t *testing.T) {
	for _, c := range []struct {
		name     string
		strategy Strategy
		fails    string
		want     []string
	}{
		{"one for one", OneForOne, "b", []string{"stop b", "start b"}},
		{"one for all, first", OneForAll, "a", []string{"stop a", "stop b", "stop c", "start a", "start b", "start c"}},
		{"one for all, last", OneForAll, "c", []string{"stop c", "stop a", "stop b", "start a", "start b", "start c"}},
		{"rest for one, first", RestForOne, "a", []string{"stop a", "stop b", "stop c", "start a", "start b", "start c"}},
		{"rest for one, middle", RestForOne, "b", []string{"stop b", "stop c", "start b", "start c"}},
		{"rest for one, last", RestForOne, "c", []string{"stop c", "start c"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := startNode(t, Config{})
			var f family
			ref := supervise(t, n, SupervisorSpec{Strategy: c.strategy, Children: []ChildSpec{
				f.child("a", RestartAlways), f.child("b", RestartAlways), f.child("c", RestartAlways),
			}})
			require.Equal(t, []string{"start a", "start b", "start c"}, f.take())
			for range 3 {
				crash(t, n, c.fails)
				require.Eventually(t, func() bool { return f.count() == len(c.want) }, 5*time.Second, time.Millisecond)
				got := f.take()
				starts := len(c.want) / 2
				require.ElementsMatch(t, c.want[:starts], got[:starts], "stops are in any order")
				require.Equal(t, c.want[starts:], got[starts:])
			}
			for _, name := range []string{"a", "b", "c"} {
				got, err := n.Call(within(t, 5*time.Second), n.Ref(name), "x")
				require.NoError(t, err)
				require.Equal(t, "x", got)
			}
			require.NoError(t, n.Stop(within(t, 5*time.Second), ref))
			require.Equal(t, []string{"stop c", "stop b", "stop a"}, f.take())
		})
	}
}

func TestSupervisorRestartModes(t *testing.T) {
	for _, strategy := range []Strategy{OneForOne, OneForAll, RestForOne} {
		t.Run(fmt.Sprint(strategy), func(t *testing.T) {
			n := startNode(t, Config{})
			var f family
			ref := supervise(t, n, SupervisorSpec{Strategy: strategy, Children: []ChildSpec{
				f.child("always", RestartAlways), f.child("error", RestartOnError), f.child("never", RestartNever),
			}})
			f.take()
			require.NoError(t, n.TryCast(n.Ref("error"), "leave"))
			crash(t, n, "never")
			require.Eventually(t, func() bool { return f.count() == 2 }, 5*time.Second, time.Millisecond)
			require.ElementsMatch(t, []string{"stop error", "stop never"}, f.take())
			require.Eventually(t, func() bool { return n.process("never") == nil && n.process("error") == nil },
				5*time.Second, time.Millisecond)
			require.NoError(t, n.TryCast(n.Ref("always"), "leave"))
			want := []string{"stop always", "start always"}
			if strategy != OneForOne { // a child that may be restarted comes back with its group
				want = append(want, "start error")
			}
			require.Eventually(t, func() bool { return f.count() == len(want) }, 5*time.Second, time.Millisecond)
			require.Equal(t, want, f.take())
			require.NoError(t, n.Stop(within(t, 5*time.Second), ref))
		})
	}
}

func TestSupervisorEndsWithItsChildren(t *testing.T) {
	n := startNode(t, Config{})
	var f family
	ref := supervise(t, n, SupervisorSpec{Children: []ChildSpec{
		f.child("a", RestartOnError), f.child("b", RestartNever),
	}})
	w := spawnWatcher(t, n, "watcher", Options{})
	tell(t, n, "watcher", func(c *Context) error { return c.Monitor(ref) })
	require.NoError(t, n.TryCast(n.Ref("a"), "leave"))
	crash(t, n, "b")
	require.Equal(t, Down{Ref: ref}, w.expect(t))
}

func TestSupervisorRestartLimit(t *testing.T) {
	n := startNode(t, Config{})
	var f family
	ref := supervise(t, n, SupervisorSpec{MaxRestarts: 3, Window: time.Minute, Children: []ChildSpec{
		f.child("a", RestartAlways), f.child("b", RestartAlways),
	}})
	w := spawnWatcher(t, n, "watcher", Options{})
	tell(t, n, "watcher", func(c *Context) error { return c.Monitor(ref) })
	for i := range 3 {
		crash(t, n, "a")
		require.Eventually(t, func() bool { return f.count() == 2+2*(i+1) }, 5*time.Second, time.Millisecond)
	}
	require.Empty(t, w.heard)
	crash(t, n, "b")
	down := w.expect(t).(Down)
	require.ErrorIs(t, down.Err, ErrRestartLimit)
	require.ErrorContains(t, down.Err, "at most 3")
	require.Eventually(t, func() bool { return n.process("a") == nil && n.process("b") == nil }, 5*time.Second, time.Millisecond)
}

func TestSupervisorWindow(t *testing.T) {
	n := startNode(t, Config{})
	var f family
	ref := supervise(t, n, SupervisorSpec{MaxRestarts: 1, Window: time.Nanosecond, Children: []ChildSpec{f.child("a", RestartAlways)}})
	for i := range 20 {
		crash(t, n, "a")
		require.Eventually(t, func() bool { return f.count() == 1+2*(i+1) }, 5*time.Second, time.Millisecond)
	}
	require.NoError(t, n.Stop(within(t, 5*time.Second), ref))
}

func TestSupervisorChildThatDoesNotStart(t *testing.T) {
	n := startNode(t, Config{})
	f := family{fails: map[string]int{"b": 3}}
	made := 0
	ref := supervise(t, n, SupervisorSpec{Children: []ChildSpec{
		f.child("a", RestartAlways), f.child("b", RestartAlways),
		{Name: "c", New: func() Actor {
			made++
			switch made {
			case 1:
				panic("in New")
			case 2:
				return nil
			}
			return &sibling{&f, "c"}
		}},
	}})
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Contains(f.events, "start b") && slices.Contains(f.events, "start c")
	}, 5*time.Second, time.Millisecond)
	require.NoError(t, n.Stop(within(t, 5*time.Second), ref))

	f.fails["a"] = 100
	_, err := n.Supervise(within(t, 5*time.Second), "sup", SupervisorSpec{MaxRestarts: 2, Children: []ChildSpec{f.child("a", RestartAlways)}})
	if err == nil { // it gave up just after it had started
		require.Eventually(t, func() bool { return n.process("sup") == nil }, 5*time.Second, time.Millisecond)
	} else {
		require.ErrorIs(t, err, ErrRestartLimit)
	}
}

// Children that fail while others are being stopped must not be forgotten.
func TestSupervisorFailuresAtOnce(t *testing.T) {
	for _, strategy := range []Strategy{OneForOne, OneForAll, RestForOne} {
		t.Run(fmt.Sprint(strategy), func(t *testing.T) {
			n := startNode(t, Config{})
			var f family
			names := []string{"a", "b", "c", "d"}
			spec := SupervisorSpec{Strategy: strategy, MaxRestarts: 1000}
			for _, name := range names {
				spec.Children = append(spec.Children, f.child(name, RestartAlways))
			}
			ref := supervise(t, n, spec)
			for range 25 {
				for _, i := range []int{2, 0, 3, 1} {
					_ = n.TryCast(n.Ref(names[i]), testMessage{Text: "crash"})
				}
				for _, name := range names {
					require.Eventually(t, func() bool {
						_, err := n.Call(within(t, time.Second), n.Ref(name), "x")
						return err == nil
					}, 5*time.Second, time.Millisecond, "%s is not running", name)
				}
			}
			require.NoError(t, n.Stop(within(t, 5*time.Second), ref))
		})
	}
}

func TestSupervisorSpecFaults(t *testing.T) {
	n := startNode(t, Config{})
	_, err := n.Supervise(within(t, 5*time.Second), "sup", SupervisorSpec{
		Strategy: 9, Window: -1,
		Children: []ChildSpec{{Name: "a b"}, {Name: "c", New: func() Actor { return nil }, Restart: 7}, {Name: "c"}},
	})
	for _, part := range []string{"Strategy is 9", "Window is -1ns", `"a b"`, "no New", "Restart is 7", "of another child"} {
		require.ErrorContains(t, err, part)
	}
	_, err = n.Supervise(within(t, 5*time.Second), "sup", SupervisorSpec{})
	require.ErrorContains(t, err, "0 children")
}
