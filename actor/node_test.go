package actor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testSecret = "a secret of the tests"

// testMessage and the others are what the tests send between nodes.
type testMessage struct {
	Seq  int64
	Text string
}

type testPointer struct{ Seq int64 }

var errTest = errors.New("actor_test: sentinel")

// within returns a context that fails the test's waits in time.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func startNode(t testing.TB, c Config) *Node {
	t.Helper()
	if c.Secret == "" && c.TLS == nil {
		c.Secret = testSecret
	}
	if c.Logger == nil && os.Getenv("ACTOR_TEST_LOG") != "" {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	n, err := Start(within(t, 10*time.Second), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	require.NoError(t, n.Register("test.message", testMessage{}))
	require.NoError(t, n.Register("test.pointer", &testPointer{}))
	require.NoError(t, n.RegisterError("test.sentinel", errTest))
	return n
}

// pair starts two nodes that are connected.
func pair(t testing.TB) (a, b *Node) {
	t.Helper()
	a = startNode(t, Config{Name: "a"})
	b = startNode(t, Config{Name: "b"})
	name, err := a.Connect(within(t, 10*time.Second), b.Addr())
	require.NoError(t, err)
	require.Equal(t, "b", name)
	return a, b
}

func spawn(t testing.TB, n *Node, name string, f ActorFunc) Ref {
	t.Helper()
	ref, err := n.Spawn(within(t, 10*time.Second), name, f, Options{})
	require.NoError(t, err)
	return ref
}

// echo answers calls with the message, fails those that say so, and ends on "crash".
func echo(c *Context, msg any) error {
	m, ok := msg.(testMessage)
	switch {
	case ok && m.Text == "fail":
		c.Request().Fail(fmt.Errorf("refused: %w", errTest))
	case ok && m.Text == "crash":
		return fmt.Errorf("crashed: %w", errTest)
	case ok && m.Text == "panic":
		panic("as asked")
	case ok && m.Text == "silent":
	default:
		c.Reply(msg)
	}
	return nil
}

// eachPlace runs f with a caller on the same node as the actor and on another one.
func eachPlace(t *testing.T, f func(t *testing.T, caller, owner *Node)) {
	t.Run("local", func(t *testing.T) {
		n := startNode(t, Config{Name: "a"})
		f(t, n, n)
	})
	t.Run("remote", func(t *testing.T) {
		a, b := pair(t)
		f(t, a, b)
	})
}

func TestCall(t *testing.T) {
	eachPlace(t, func(t *testing.T, caller, owner *Node) {
		ref := spawn(t, owner, "echo", echo)
		ctx := within(t, 5*time.Second)
		for _, msg := range []any{
			nil, true, 7, int64(-7), uint64(7), 7.5, "text",
			[]byte{1, 2},
			ref,
			testMessage{Seq: 7, Text: "seven"},
			&testPointer{Seq: 8},
		} {
			got, err := caller.Call(ctx, ref, msg)
			require.NoError(t, err)
			require.Equal(t, msg, got)
		}
		typed, err := Call[testMessage](ctx, caller, ref, testMessage{Seq: 1})
		require.NoError(t, err)
		require.Equal(t, testMessage{Seq: 1}, typed)
		pointer, err := Call[*testMessage](ctx, caller, ref, testMessage{Seq: 1})
		require.NoError(t, err)
		require.Equal(t, &testMessage{Seq: 1}, pointer)
		_, err = Call[string](ctx, caller, ref, testMessage{Seq: 1})
		require.ErrorIs(t, err, ErrUnknownType)
	})
}
