package actor

import (
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// garbage sends bytes to a node and waits until it hangs up.
func garbage(t *testing.T, addr string, data []byte) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, _ = c.Write(data) // it may hang up before all is written
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.Copy(io.Discard, c)
	if ne, ok := err.(net.Error); ok {
		require.False(t, ne.Timeout(), "the node did not hang up")
	}
}

func TestGarbageOnThePort(t *testing.T) {
	a, b := pair(t)
	ref := spawn(t, b, "echo", echo)
	long := make([]byte, 1<<16)
	_, _ = rand.Read(long)
	for _, data := range [][]byte{
		[]byte("GET / HTTP/1.1\r\n\r\n"),
		{},
		{0, 0},
		{255, 255, 1, 2, 3},
		long,
		append([]byte{10, 0}, "eps\x01\x01\x00zzzz"...), append([]byte{10, 0}, "eps\x01\x09\x00zzzz"...),
	} {
		garbage(t, b.Addr(), data)
		got, err := a.Call(within(t, 5*time.Second), ref, "x")
		require.NoError(t, err)
		require.Equal(t, "x", got)
	}
}

// A crowd that says nothing holds up neither the connected nor, once it has been
// thrown out, a newcomer.
func TestSlowloris(t *testing.T) {
	a, b := pair(t)
	ref := spawn(t, b, "echo", echo)
	for range maxAccepting + 20 {
		c, err := net.Dial("tcp", b.Addr())
		require.NoError(t, err)
		defer c.Close()
	}
	begin := time.Now()
	for i := range 100 {
		_, err := a.Call(within(t, 5*time.Second), ref, i)
		require.NoError(t, err)
	}
	newcomer := startNode(t, Config{})
	_, err := newcomer.Connect(within(t, 10*time.Second), b.Addr())
	require.NoError(t, err)
	require.Less(t, time.Since(begin), handshakeTimeout+3*time.Second)
}

// Bad frames from an authenticated peer end the connection with a typed error; the
// node and its other connections go on.
func TestBadFrames(t *testing.T) {
	oversize := binary.LittleEndian.AppendUint32(nil, maxFrame+1)
	oversize = append(oversize, byte(kindCast))
	for name, frame := range map[string][]byte{
		"oversize":     oversize,
		"huge":         {255, 255, 255, 255, byte(kindCall)},
		"empty":        {0, 0, 0, 0, 0},
		"unknown kind": {1, 0, 0, 0, 99},
		"short cast":   {3, 0, 0, 0, byte(kindCast), 200, 1},
		"short flow":   {2, 0, 0, 0, byte(kindOpen), 9},
		"probe":        {2, 0, 0, 0, byte(kindPing), 0x80},
	} {
		t.Run(name, func(t *testing.T) {
			down := make(chan error, 2)
			b := startNode(t, Config{Name: "b", Observe: Observer{PeerDown: func(_ string, err error) { down <- err }}})
			a := startNode(t, Config{Name: "a"})
			c := startNode(t, Config{Name: "c"})
			for _, n := range []*Node{a, c} {
				_, err := n.Connect(within(t, 5*time.Second), b.Addr())
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { return len(b.Peers()) == 2 }, 5*time.Second, time.Millisecond)
			require.NoError(t, a.livePeer("b").s.Send(frame))
			err := <-down
			require.ErrorIs(t, err, ErrNodeDown)
			require.ErrorIs(t, err, ErrBadMessage)
			ref := spawn(t, b, "echo", echo)
			_, err = c.Call(within(t, 5*time.Second), ref, "x")
			require.NoError(t, err)
		})
	}
}

func TestBadPayload(t *testing.T) {
	a, b := pair(t)
	ref := spawn(t, b, "echo", echo)
	c := a.livePeer("b")
	id, pc := a.calls.add(c)
	defer a.calls.drop(id, pc)
	e := a.encs.get()
	e.begin(kindCall)
	e.uint(id)
	e.uint(0)
	e.uint(1_000_000)
	e.name(ref.Name)
	e.name("")
	e.name("test.message")
	e.b = append(e.b, 0xdd, 0xff, 0xff, 0xff, 0xff) // an array of 4 G elements
	require.NoError(t, c.send(e.finish()))
	_, err := pc.wait(within(t, 5*time.Second))
	require.ErrorIs(t, err, ErrBadMessage)
	_, err = a.Call(within(t, 5*time.Second), ref, "x")
	require.NoError(t, err, "the connection lives")
}

// A peer that casts without credit is cut off before it fills the memory.
func TestCastsWithoutCredit(t *testing.T) {
	down := make(chan error, 1)
	b := startNode(t, Config{Name: "b", Observe: Observer{PeerDown: func(_ string, err error) { down <- err }}})
	a := startNode(t, Config{Name: "a"})
	_, err := a.Connect(within(t, 5*time.Second), b.Addr())
	require.NoError(t, err)
	gate := make(chan struct{})
	defer close(gate)
	ref := spawn(t, b, "gate", func(*Context, any) error { <-gate; return nil })
	require.NoError(t, a.Cast(within(t, 5*time.Second), ref, "x"))
	e := a.encs.get()
	e.begin(kindCast)
	e.name(ref.Name)
	e.name("")
	e.name("") // nil
	frame := e.finish()
	c := a.livePeer("b")
	sent := 0
	for c.send(frame) == nil {
		sent++
		require.Less(t, sent, 10_000_000)
	}
	require.ErrorContains(t, <-down, "credit was given for 8192")
	require.Less(t, b.process("gate").box.count, castWindow+creditSlack+1)
}
