package ps_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
)

// besieged is a server under attack, and a worker that must notice nothing of it.
type besieged struct {
	*cluster
	t      *testing.T
	server *ps.Server
	w      *ps.Worker
	sum    float32
}

const targetElems = 4

func newBesieged(t *testing.T, change func(*ps.ServerConfig)) *besieged {
	settled(t)
	job := sgdJob(layer("attacked", targetElems), layer("honest", 1000), layer("large", ps.BlockElems))
	b := &besieged{cluster: newCluster(t, job, patient), t: t}
	b.server = b.serverWith("s1", change)
	b.placed()
	b.w = b.worker("honest")
	b.undisturbed()
	return b
}

// undisturbed requires that an honest worker's push counts, soon, and only it.
func (b *besieged) undisturbed() {
	b.t.Helper()
	started := time.Now()
	got := make([]float32, 1000)
	require.NoError(b.t, b.w.PushPull(b.ctx, "honest", vector(1000, -1), got))
	b.sum++
	require.Equal(b.t, vector(1000, b.sum), got)
	require.Less(b.t, time.Since(started), patience/2)
}

// attacked is the value of the layer that is written to by hand.
func (b *besieged) attacked() []float32 {
	b.t.Helper()
	got := make([]float32, targetElems)
	require.NoError(b.t, b.w.Pull(b.ctx, "attacked", got))
	return got
}

func anyConfig(*ps.ServerConfig) {}

// A connection that ends at any byte of a small exchange: a push counts when it was
// whole, once however often it comes, and never in part.
func TestHostileCuts(t *testing.T) {
	b := newBesieged(t, anyConfig)
	push := rawPush(1, -1, -1, -1, -1)
	whole := wire.HeaderBytes + 64 + len(push) // proof and push
	for cut := 0; cut <= whole+wire.HeaderBytes; cut++ {
		p := insider(t, b.server, b.server.Token())
		p.write(append(append(p.auth, push...), rawPull(targetElems)...)[:cut])
		require.NoError(t, p.nc.(*net.TCPConn).CloseWrite())
		p.refused()
		if cut < whole {
			require.Equal(t, vector(targetElems, 0), b.attacked(), "cut at %d", cut)
		}
	}
	require.Equal(t, vector(targetElems, 1), b.attacked())
	b.undisturbed()
}

// One bit changed anywhere on the way from a worker: nothing of that frame is applied
// and the connection ends.
func TestHostileBitFlips(t *testing.T) {
	b := newBesieged(t, anyConfig)
	push := rawPush(1, -1, -1, -1, -1)
	for i := range wire.HeaderBytes + 64 + len(push) {
		p := insider(t, b.server, b.server.Token())
		sent := append(p.auth, push...)
		sent[i] ^= 1 << (i % 8)
		p.try(sent)
		_ = p.nc.(*net.TCPConn).CloseWrite() // a length that grew waits for more
		p.refused()
	}
	require.Equal(t, vector(targetElems, 0), b.attacked())
	b.undisturbed()
}

// resealed changes bytes of a header and makes its checksum right again.
func resealed(f []byte, change func(h []byte)) []byte {
	f = bytes.Clone(f)
	change(f)
	binary.LittleEndian.PutUint32(f[76:], crc32.Checksum(f[:76], crc32.MakeTable(crc32.Castagnoli)))
	return f
}

func garbage(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// Whoever has not proven the token gets nowhere, whatever it says.
func TestHostileStrangers(t *testing.T) {
	b := newBesieged(t, anyConfig)
	auth := frame(wire.Header{Kind: wire.Auth}, make([]byte, 64))
	says := map[string][]byte{
		"garbage":                garbage(1<<16, 1),
		"nothing":                nil,
		"http":                   []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"tls":                    {0x16, 3, 1, 0, 0xf4, 1, 0, 0, 0xf0, 3, 3},
		"push without a proof":   rawPush(1, -1, -1, -1, -1),
		"pull without a proof":   rawPull(targetElems),
		"wrong proof":            auth,
		"short proof":            frame(wire.Header{Kind: wire.Auth}, make([]byte, 63)),
		"long proof":             frame(wire.Header{Kind: wire.Auth}, make([]byte, 65)),
		"empty proof":            frame(wire.Header{Kind: wire.Auth}, nil),
		"oversized proof":        resealed(auth, func(h []byte) { binary.LittleEndian.PutUint32(h[12:], wire.MaxPayload) }),
		"length of 4 GiB":        resealed(auth, func(h []byte) { binary.LittleEndian.PutUint32(h[12:], ^uint32(0)) }),
		"another version":        resealed(auth, func(h []byte) { h[2]++ }),
		"version 0":              resealed(auth, func(h []byte) { h[2] = 0 }),
		"another protocol":       resealed(auth, func(h []byte) { h[0]++ }),
		"unknown kind":           resealed(auth, func(h []byte) { h[3] = 200 }),
		"a proof that was heard": heard(b),
	}
	for name, said := range says {
		t.Run(name, func(t *testing.T) {
			p := stranger(t, b.server)
			p.try(said)
			if said != nil {
				_ = p.nc.(*net.TCPConn).CloseWrite()
			}
			p.refused()
		})
	}
	p := insider(t, b.server, bytes.Repeat([]byte{7}, 32))
	p.write(p.auth)
	p.refused()
	require.Equal(t, vector(targetElems, 0), b.attacked())
	b.undisturbed()
}

// heard is the right proof of another connection, with a push behind it.
func heard(b *besieged) []byte {
	p := insider(b.t, b.server, b.server.Token())
	return append(p.auth, rawPush(1, -1, -1, -1, -1)...)
}

// A peer that has proven itself and sends frames that make no sense: each is answered
// with a refusal or ends that connection, and changes nothing.
func TestHostileFrames(t *testing.T) {
	b := newBesieged(t, anyConfig)
	push := rawPush(1, -1, -1, -1, -1)
	header := func(change func(*wire.Header)) []byte {
		h := wire.Header{Kind: wire.Push, Request: 1, Epoch: 1, Incarnation: ghost, Seq: 1, Floor: 1, Count: targetElems}
		change(&h)
		return frame(h, wire.Bytes(vector(targetElems, -1)))
	}
	says := map[string][]byte{
		"garbage":            garbage(1<<16, 2),
		"over the limit":     resealed(push, func(h []byte) { binary.LittleEndian.PutUint32(h[12:], wire.MaxPayload+1) }),
		"4 GiB":              resealed(push, func(h []byte) { binary.LittleEndian.PutUint32(h[12:], ^uint32(0)) }),
		"wrong checksum":     append(bytes.Clone(push[:len(push)-1]), push[len(push)-1]^1),
		"unknown shard":      header(func(h *wire.Header) { h.Shard = 1 << 31 }),
		"offset beyond":      header(func(h *wire.Header) { h.Offset = 1 }),
		"offset overflows":   header(func(h *wire.Header) { h.Offset = ^uint64(0) - 2 }),
		"count of nothing":   header(func(h *wire.Header) { h.Count = 0 }),
		"count over payload": header(func(h *wire.Header) { h.Count = targetElems + 1 }),
		"count of 4 Gi":      header(func(h *wire.Header) { h.Count = ^uint32(0) }),
		"odd length":         frame(wire.Header{Kind: wire.Push, Epoch: 1, Incarnation: ghost, Seq: 1, Floor: 1, Count: 1}, []byte{1, 2, 3}),
		"wrong epoch":        header(func(h *wire.Header) { h.Epoch = 7 }),
		"epoch 0":            header(func(h *wire.Header) { h.Epoch = 0 }),
		"assign":             header(func(h *wire.Header) { h.Kind = wire.Assign }),
		"reply":              header(func(h *wire.Header) { h.Kind = wire.Reply }),
		"second proof":       header(func(h *wire.Header) { h.Kind = wire.Auth }),
		"hello":              header(func(h *wire.Header) { h.Kind = wire.Hello }),
		"follow":             header(func(h *wire.Header) { h.Kind = wire.Follow }),
		"block":              header(func(h *wire.Header) { h.Kind = wire.Block }),
		"block meta":         header(func(h *wire.Header) { h.Kind = wire.BlockMeta }),
		"forward":            header(func(h *wire.Header) { h.Kind = wire.Forward }),
		"state":              header(func(h *wire.Header) { h.Kind = wire.State }),
		"huge pull":          frame(wire.Header{Kind: wire.Pull, Epoch: 1, Count: ^uint32(0)}, nil),
	}
	for name, said := range says {
		t.Run(name, func(t *testing.T) {
			p := friend(t, b.server)
			p.try(said)
			_ = p.nc.(*net.TCPConn).CloseWrite()
			for {
				out := make([]byte, wire.HeaderBytes+wire.MaxPayload)
				_, h, err := readRaw(p.nc, out)
				if err != nil {
					break // closed
				}
				require.NotZero(t, h.Code, "an answer that is a refusal")
			}
			require.Equal(t, vector(targetElems, 0), b.attacked())
		})
	}
	b.undisturbed()
}

// Peers that take their time: a stranger is gone within the handshake's time, however
// it stretches it; a crowd of them keeps nobody out for long; one that has proven
// itself and stops in the middle of a frame holds nothing but its own connection.
func TestHostileSlowPeers(t *testing.T) {
	b := newBesieged(t, anyConfig)
	heap := heapInUse()
	crowd := make([]*rawPeer, 300)
	for i := range crowd {
		crowd[i] = stranger(t, b.server)
	}
	var slow []*rawPeer
	big := rawPush(1, vector(ps.BlockElems, -1)...)
	for range 8 {
		p := friendThroughCrowd(t, b.server)
		p.write(big[:wire.HeaderBytes+1000])
		slow = append(slow, p)
	}
	started := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; time.Since(started) < 3*time.Second; i++ {
		for _, p := range append(crowd[:20:20], slow...) {
			p.try(big[i : i+1]) // one byte at a time
		}
		b.undisturbed()
		<-tick.C
	}
	for _, p := range crowd {
		p.refused()
	}
	require.Less(t, heapInUse(), heap+64<<20)
	require.NoError(t, b.server.Close(), "a server with slow peers closes at once")
	for _, p := range slow {
		p.refused()
	}
}

// friendThroughCrowd becomes a friend as soon as the server has room.
func friendThroughCrowd(t *testing.T, s *ps.Server) *rawPeer {
	t.Helper()
	var p *rawPeer
	eventually(t, "the server takes a peer in", func() bool {
		nc, err := net.Dial("tcp", s.DataAddr())
		if err != nil {
			return false
		}
		_ = nc.SetDeadline(time.Now().Add(patience))
		b := make([]byte, wire.HeaderBytes+wire.MaxPayload)
		n, h, err := readRaw(nc, b)
		if err != nil || h.Kind != wire.Hello {
			_ = nc.Close()
			return false
		}
		mine := make([]byte, 32)
		proof := ps.Proof(s.Token(), "client", b[wire.HeaderBytes:n], mine)
		_, _ = nc.Write(frame(wire.Header{Kind: wire.Auth}, append(mine, proof...)))
		if _, _, err = readRaw(nc, b); err != nil {
			_ = nc.Close()
			return false
		}
		p = &rawPeer{t: t, nc: nc}
		t.Cleanup(func() { _ = nc.Close() })
		return true
	})
	return p
}

// A peer that asks for much and reads nothing is cut off after the write timeout; it
// holds one goroutine and a bounded amount of memory until then.
func TestHostilePeerStopsReading(t *testing.T) {
	b := newBesieged(t, func(cfg *ps.ServerConfig) { cfg.WriteTimeout = time.Second })
	heap := heapInUse()
	var deaf []*rawPeer
	pull := frame(wire.Header{Kind: wire.Pull, Shard: b.shardOf("large"), Request: 1, Epoch: 1, Count: 1 << 10}, nil)
	for range 10 {
		p := friend(t, b.server)
		require.NoError(t, p.nc.SetDeadline(time.Now().Add(patience)))
		go func() { _, _ = io.Copy(p.nc, io.LimitReader(endless(pull), 64<<20)) }()
		deaf = append(deaf, p)
	}
	for range 20 {
		b.undisturbed()
	}
	for _, p := range deaf {
		requireCutOff(t, p)
	}
	require.Less(t, heapInUse(), heap+64<<20)
	b.undisturbed()
}

// shardOf is the first shard of a layer.
func (b *besieged) shardOf(layer string) uint32 {
	b.t.Helper()
	shards, err := b.admin.Shards(b.ctx)
	require.NoError(b.t, err)
	for _, s := range shards {
		if b.cfg.Job.Model.Layers[s.Range.Layer].Name == layer {
			return uint32(s.ID)
		}
	}
	b.t.Fatalf("no shard of layer %s", layer)
	return 0
}

// requireCutOff waits until the other end has closed the connection, without reading
// more than what shows it.
func requireCutOff(t *testing.T, p *rawPeer) {
	t.Helper()
	eventually(t, "the server gives the peer up", func() bool {
		_ = p.nc.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err := p.nc.Write([]byte{0})
		ne, isNet := err.(net.Error)
		return err != nil && !(isNet && ne.Timeout())
	})
}

type repeated struct {
	b   []byte
	pos int
}

func endless(b []byte) io.Reader { return &repeated{b: b} }

func (r *repeated) Read(dst []byte) (int, error) {
	n := 0
	for n < len(dst) {
		m := copy(dst[n:], r.b[r.pos:])
		n += m
		r.pos = (r.pos + m) % len(r.b)
	}
	return n, nil
}
