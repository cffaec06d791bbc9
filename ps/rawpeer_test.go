package ps_test

import (
	"crypto/rand"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
)

// rawPeer speaks the data plane by hand, so that it can speak it wrongly.
type rawPeer struct {
	t    *testing.T
	nc   net.Conn
	auth []byte // the frame that proves the token, not sent yet
}

// stranger connects and knows nothing.
func stranger(t *testing.T, s *ps.Server) *rawPeer {
	t.Helper()
	nc, err := net.Dial("tcp", s.DataAddr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	return &rawPeer{t: t, nc: nc}
}

// insider connects and has its proof ready.
func insider(t *testing.T, s *ps.Server, token []byte) *rawPeer {
	t.Helper()
	p := stranger(t, s)
	h, nonce := p.read()
	require.Equal(t, wire.Hello, h.Kind)
	mine := make([]byte, 32)
	_, _ = rand.Read(mine) // never fails
	p.auth = frame(wire.Header{Kind: wire.Auth}, append(mine, ps.Proof(token, "client", nonce, mine)...))
	return p
}

// friend is an insider that has proven itself.
func friend(t *testing.T, s *ps.Server) *rawPeer {
	t.Helper()
	p := insider(t, s, s.Token())
	p.write(p.auth)
	h, _ := p.read()
	require.Equal(t, wire.Reply, h.Kind)
	return p
}

func frame(h wire.Header, payload []byte) []byte {
	h.Length, h.PayloadSum = uint32(len(payload)), wire.Sum(payload)
	out := make([]byte, wire.HeaderBytes, wire.HeaderBytes+len(payload))
	h.Encode(out)
	return append(out, payload...)
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	_, err := p.nc.Write(b)
	require.NoError(p.t, err)
}

// try writes to a server that may have closed the connection.
func (p *rawPeer) try(b []byte) { _, _ = p.nc.Write(b) }

func (p *rawPeer) read() (wire.Header, []byte) {
	p.t.Helper()
	b := make([]byte, wire.HeaderBytes+wire.MaxPayload)
	n, h, err := readRaw(p.nc, b)
	require.NoError(p.t, err)
	return h, b[wire.HeaderBytes:n]
}

// refused requires that the server closes the connection, whatever it says before.
func (p *rawPeer) refused() {
	p.t.Helper()
	buf := make([]byte, 4096)
	for {
		_, err := p.nc.Read(buf)
		if err == nil {
			continue
		}
		var timeout net.Error
		if ne, ok := err.(net.Error); ok {
			timeout = ne
		}
		require.False(p.t, timeout != nil && timeout.Timeout(), "the server keeps the connection open")
		_ = p.nc.Close()
		return
	}
}

// ghost is the incarnation of pushes by hand: no worker gets it in a test.
const ghost = 1 << 40

func rawPush(seq uint64, values ...float32) []byte {
	return frame(wire.Header{
		Kind: wire.Push, Request: seq, Epoch: 1, Incarnation: ghost, Seq: seq, Floor: seq, Count: uint32(len(values)),
	}, wire.Bytes(values))
}

func rawPull(count uint32) []byte {
	return frame(wire.Header{Kind: wire.Pull, Request: 99, Epoch: 1, Count: count}, nil)
}
