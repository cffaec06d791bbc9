package actor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	childEnv    = "ACTOR_TEST_CHILD"
	childSecret = "the secret of the child"
)

// TestMain runs the test binary as a second node when it is started as one.
func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		runChild(name)
		return
	}
	os.Exit(m.Run())
}

// runChild is a node in a process of its own: an echo actor, a counter of casts, and a
// plain TCP echo to compare with. It ends with its standard input.
func runChild(name string) {
	ctx := context.Background()
	n, err := Start(ctx, Config{Name: name, Secret: childSecret})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	_ = n.Register("test.message", testMessage{})
	_ = n.Register("test.pointer", &testPointer{})
	_, _ = n.Spawn(ctx, "echo", ActorFunc(echo), Options{})
	_, _ = n.Spawn(ctx, "count", &counter{}, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println("error", err)
		return
	}
	go echoRaw(l)
	fmt.Println(n.Addr(), l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = n.Close()
}

func echoRaw(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// counter counts casts and those out of order; a call asks for the result.
type counter struct{ next, disorder int64 }

func (k *counter) Receive(c *Context, msg any) error {
	if m, ok := msg.(*testPointer); ok {
		if m.Seq != k.next {
			k.disorder++
		}
		k.next = m.Seq + 1
		return nil
	}
	if msg == "reset" {
		*k = counter{}
	}
	c.Reply(testMessage{Seq: k.next, Text: fmt.Sprint(k.disorder)})
	return nil
}

// childProcess is a running child.
type childProcess struct {
	cmd       *exec.Cmd
	addr, raw string
}

func startChild(t testing.TB, name string) *childProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer timer.Stop()
		_ = cmd.Wait() // killed ones say so
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	words := strings.Fields(line)
	require.Len(t, words, 2, line)
	require.NotEqual(t, "error", words[0], line)
	return &childProcess{cmd: cmd, addr: words[0], raw: words[1]}
}

// withChild starts a node here and one in another process, connected.
func withChild(t testing.TB, c Config) (*Node, *childProcess) {
	t.Helper()
	child := startChild(t, "child")
	c.Secret = childSecret
	n := startNode(t, c)
	_, err := n.Connect(within(t, 10*time.Second), child.addr)
	require.NoError(t, err)
	return n, child
}
