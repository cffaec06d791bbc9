package ps

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// fuzzedServer is a server's data plane without its actor: one shard that it owns and
// one that it receives from another server, and two of tables likewise.
func fuzzedServer(tb testing.TB) *Server {
	job := Job{
		Model: shard.Model{Layers: []shard.Layer{
			{Name: "owned", Shape: []int{BlockElems + 9}},
			{Name: "received", Shape: []int{9}},
			{Name: "owned rows", Shape: []int{9, 2}, Sparse: true},
			{Name: "received rows", Shape: []int{9, 2}, Sparse: true},
		}},
		Tables:    map[string]Table{"owned rows": {AdmitAfter: 2, MaxRows: 4, ExpireClocks: 3}, "received rows": {AdmitAfter: 2, ExpireClocks: 3}},
		Optimizer: Momentum(1, 0.5), Consistency: Consistency{Mode: BSP}, MaxShardBytes: 64 << 20,
	}
	shards, err := job.partition()
	require.NoError(tb, err)
	require.Len(tb, shards, 4)
	s := &Server{
		cfg: ServerConfig{ID: "s", WriteTimeout: time.Second}, log: slog.New(slog.DiscardHandler), token: stream.NewNonce(),
		free: make(buffers, 4), job: job, shards: shards,
		replicas: map[shard.ID]*replica{}, conns: map[*stream.Conn]struct{}{}, flights: map[flightKey]*flight{},
	}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	ctx := context.Background()
	for id := range uint32(2) {
		require.NoError(tb, s.execute(ctx, command{Kind: commandHost, Shard: 2 * id, Epoch: 1}))
		require.NoError(tb, s.execute(ctx, command{Step: shard.EffectPrepare, Shard: 2*id + 1, Epoch: 2, Attempt: 1, Peer: serverInfo{ID: "t"}}))
	}
	return s
}

// fuzzedFrames turns any bytes into frames with right checksums: 32 bytes of fields,
// then a payload of as many bytes as they say, for as long as the input lasts.
func fuzzedFrames(in []byte) []byte {
	var out []byte
	for len(in) >= 32 && len(out) < 4<<20 {
		le := binary.LittleEndian
		h := wire.Header{
			Kind: wire.Kind(in[0]), Code: in[1], Shard: uint32(in[2]), Request: uint64(in[3]), Epoch: uint64(in[4]),
			Incarnation: uint64(in[5]), Seq: uint64(le.Uint16(in[6:])), Floor: uint64(le.Uint16(in[8:])), Clock: uint32(in[10]),
			Offset: le.Uint64(in[12:]), Count: le.Uint32(in[20:]),
		}
		n := min(int(le.Uint16(in[24:])), len(in)-32)
		payload := in[32 : 32+n]
		if in[26]&1 == 1 { // as many bytes as elements, to get further
			payload = make([]byte, min(4*uint64(h.Count), wire.MaxPayload))
		}
		in = in[32+n:]
		h.Length, h.PayloadSum = uint32(len(payload)), wire.Sum(payload)
		out = append(out, make([]byte, wire.HeaderBytes)...)
		h.Encode(out[len(out)-wire.HeaderBytes:])
		out = append(out, payload...)
	}
	return out
}

// FuzzSession sends any bytes, raw or as well-formed frames, to a server: it does not
// panic or hang, ends the session, and goes on to serve others.
func FuzzSession(f *testing.F) {
	field := func(kind wire.Kind, code, shardID, request, epoch byte, count uint32, flags byte) []byte {
		b := make([]byte, 32)
		b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[8] = byte(kind), code, shardID, request, epoch, 1, 1, 1
		binary.LittleEndian.PutUint32(b[20:], count)
		b[26] = flags
		return b
	}
	cat := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	f.Add(true, []byte("GET / HTTP/1.1"))
	f.Add(true, make([]byte, 200))
	f.Add(false, cat(field(wire.Push, 0, 0, 1, 1, 9, 1), field(wire.Pull, 0, 0, 2, 1, 9, 0)))
	follow := field(wire.Follow, 0, 1, 0, 0, 0, 0)
	meta := field(wire.BlockMeta, 0, 1, 1, 0, 0, 0)
	meta[24] = blockMetaBytes
	state := field(wire.State, 1, 1, 4, 0, 0, 0)
	state[24] = 36
	f.Add(false, cat(follow, meta, make([]byte, blockMetaBytes), field(wire.Block, 0, 1, 2, 0, 9, 1), field(wire.Block, 1, 1, 3, 0, 9, 1), state, make([]byte, 36)))
	f.Add(false, cat(follow, field(wire.Forward, byte(wire.Push), 1, 1, 0, 9, 1)))
	f.Add(false, cat(field(wire.Assign, 0, 0, 1, 1, BlockElems, 1), field(wire.Push, 0, 0, 2, 1, BlockElems, 1)))
	rows := func(kind wire.Kind, shardID, request byte, count uint32, bytes int) []byte {
		b := field(kind, 0, shardID, request, 1, count, 0)
		b[24] = byte(bytes)
		b[6] = request
		return append(b, make([]byte, bytes)...)
	}
	f.Add(false, cat(rows(wire.PushRows, 2, 1, 4, 32), rows(wire.PushRows, 2, 2, 4, 32), rows(wire.PullRows, 2, 3, 4, 16), rows(wire.PullRows, 2, 4, 3, 16)))
	f.Add(false, cat(rows(wire.PushRows, 0, 1, 4, 32), rows(wire.PushRows, 0, 2, 0, 0), rows(wire.PullRows, 0, 3, 4, 16)))
	follow[2] = 3
	meta[2], meta[24] = 3, tableMetaBytes
	contents := make([]byte, tableMetaBytes)
	contents[blockMetaBytes] = 1
	row := rows(wire.Block, 3, 2, 1, 16+3*8)
	state[2], state[3] = 3, 3
	f.Add(false, cat(follow, meta, contents, row, state, make([]byte, 36)))
	forward := rows(wire.Forward, 3, 4, 2, 16)
	forward[1] = byte(wire.PushRows)
	f.Add(false, cat(follow, meta, contents, row, forward))
	f.Add(false, cat(rows(wire.PushRows, 2, 1, 4, 32), rows(wire.PushRows, 2, 2, 4, 32), rows(wire.DeleteRows, 2, 3, 0, 16), rows(wire.DeleteRows, 2, 4, 4, 16)))
	gone := rows(wire.Forward, 3, 4, 0, 8)
	gone[1] = byte(wire.DeleteRows)
	f.Add(false, cat(follow, meta, contents, row, gone))
	f.Fuzz(func(t *testing.T, raw bool, in []byte) {
		if !raw {
			in = fuzzedFrames(in)
		}
		s := fuzzedServer(t)
		defer s.closeData()
		converse(t, s, in)
		require.Eventually(t, func() bool { return s.parked.Load() == 0 }, 10*time.Second, time.Millisecond)
		h := wire.Header{Kind: wire.Pull, Epoch: 1, Count: 9}
		require.Equal(t, codeOK, s.perform(context.Background(), &h, nil, make([]float32, 9)).code)
	})
}

// converse writes all of in to a session and reads what it answers until it ends.
func converse(t *testing.T, s *Server, in []byte) {
	mine, theirs := net.Pipe()
	ended, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		s.serveConn(theirs, nil)
	}()
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, mine) // until the session ends
	}()
	_, _ = mine.Write(in) // the session may end before it has read all
	s.replicas[0].mu.Lock()
	s.replicas[0].become(s.replicas[0].copy) // whoever waits for a change of role goes on
	s.replicas[0].mu.Unlock()
	_ = mine.Close()
	select {
	case <-ended:
		<-read
	case <-time.After(10 * time.Second):
		t.Fatal("the session hangs")
	}
}

// FuzzLink sends any bytes to a client that waits for answers: it does not panic or
// hang, never writes beyond the caller's slice, and fails what is under way when the
// connection ends.
func FuzzLink(f *testing.F) {
	reply := func(code byte, count uint32, payload int) []byte {
		b := make([]byte, 32+payload)
		b[0], b[1], b[3] = byte(wire.Reply), code, 1
		binary.LittleEndian.PutUint32(b[20:], count)
		b[24] = byte(payload)
		return b
	}
	f.Add(true, []byte("HTTP/1.1 400 Bad Request"))
	f.Add(false, reply(0, 4, 16))
	f.Add(false, reply(0, 5, 20))
	f.Add(false, reply(1, 0, 200))
	f.Fuzz(func(t *testing.T, raw bool, in []byte) {
		if !raw {
			in = fuzzedFrames(in)
		}
		mine, theirs := net.Pipe()
		l := newLink(stream.New(mine, stream.Config{}), 2, newBusy())
		slice := make([]float32, 12)
		k := &call{server: &serverInfo{}, header: wire.Header{Kind: wire.Pull, Count: 4}, values: slice[4:8:8], leg: &leg{link: l, wake: make(chan struct{}, 1)}}
		k.leg.left.Store(1)
		go func() { _, _ = io.CopyN(io.Discard, theirs, wire.HeaderBytes) }() // the request
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, l.reserve(ctx, k))
		l.send([]*call{k})
		go func() {
			_, _ = theirs.Write(in) // the client may close first
			_ = theirs.Close()
		}()
		k.leg.wait(ctx, 0)
		require.True(t, k.done.Load(), "the call hangs")
		require.Equal(t, make([]float32, 4), slice[:4])
		require.Equal(t, make([]float32, 4), slice[8:])
		_ = l.conn.Close()
	})
}
