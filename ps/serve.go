package ps

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

const (
	handshakeTimeout = 2 * time.Second
	followTimeout    = 2 * time.Second // a follower that takes nothing for so long is given up
	maxReplyText     = 512
	maxParked        = 1024 // requests that wait for a frozen shard
	maxUnproven      = 64   // connections that have not proven the token yet
)

// frameBuffer is the read buffer of a data connection that carries large frames: one is
// used where it was received while the next one arrives.
const frameBuffer = 2 * (wire.HeaderBytes + wire.MaxPayload)

// session is the server's end of one data connection. Requests are served one
// after the other by one goroutine, so a request costs no hand-over.
type session struct {
	server *Server
	conn   *stream.Conn
	out    replies
	taken  int     // payload of the requests whose replies are in out
	more   bool    // the last one said that another follows at once
	room   *buffer // for values that cannot be used where they arrived
	ids    []int64 // and for ids

	incoming map[uint32]*incoming // by shard: the streams that fill copies here
	heard    atomic.Int64         // when the owner of those was last told that they follow, or about to be

	mu      sync.Mutex
	ripe    []ripe // deferred answers that may be sent
	writing bool   // somebody sends them
	held    int    // buffers in deferred answers
}

// ripe is a deferred answer whose time has come.
type ripe struct {
	deferred
	ok bool
}

// serveConn speaks the data protocol on nc until it ends. Whatever arrives, the
// worst that happens is that this connection is closed.
func (s *Server) serveConn(nc net.Conn, unproven *atomic.Int64) {
	conn := stream.New(nc, stream.Config{BufferBytes: frameBuffer, WriteTimeout: s.cfg.WriteTimeout})
	defer conn.Close()
	if !s.track(conn) {
		return
	}
	defer s.untrack(conn)
	if unproven != nil {
		if unproven.Add(1) > maxUnproven {
			unproven.Add(-1)
			return
		}
		err := acceptHandshake(conn, s.token)
		unproven.Add(-1)
		if err != nil {
			s.log.Warn("data connection refused", "server", s.cfg.ID, "peer", nc.RemoteAddr(), "err", err)
			return
		}
	}
	ses := &session{server: s, conn: conn, incoming: map[uint32]*incoming{}}
	defer ses.out.discard(s.free)
	for {
		if err := ses.next(); err != nil {
			if conn.Err() == nil || errors.Is(err, wire.ErrChecksum) || errors.Is(err, errStream) {
				s.log.Warn("data connection closed", "server", s.cfg.ID, "peer", nc.RemoteAddr(), "err", err)
			}
			return
		}
	}
}

// next serves one frame. Replies wait while there are more requests, up to batchBytes of them,
// and leave together: each write wakes the client. An error means that the connection cannot be
// trusted any further.
func (ses *session) next() error {
	if (ses.conn.Buffered() < wire.HeaderBytes && !ses.more) || ses.taken >= batchBytes {
		if err := ses.flush(); err != nil {
			return err
		}
	}
	raw, err := ses.conn.Next(wire.HeaderBytes)
	if err != nil {
		return err
	}
	var h wire.Header
	if err := h.Decode(raw); err != nil {
		return err
	}
	payload, err := ses.conn.Next(int(h.Length))
	if err != nil {
		return err
	}
	if err := h.CheckPayload(payload); err != nil {
		return err
	}
	ses.taken += len(payload)
	ses.more = h.Flags&wire.More != 0
	switch h.Kind {
	case wire.Push, wire.Assign, wire.Pull, wire.PushRows, wire.PullRows, wire.DeleteRows:
		return ses.request(&h, payload)
	case wire.Follow:
		return ses.follow(&h, payload)
	case wire.BlockMeta, wire.Block, wire.Forward, wire.State:
		return ses.receive(&h, payload)
	case wire.Beat:
		return ses.beat(&h)
	}
	return fmt.Errorf("%w: %d is not a request", wire.ErrKind, h.Kind)
}

// floats views a payload of float32 values. They lie aligned unless a peer has sent a
// payload of an odd length before.
func (ses *session) floats(payload []byte) []float32 {
	if x, ok := wire.Floats(payload); ok {
		return x
	}
	copy(ses.scratch().bytes(len(payload)), payload)
	return ses.room.floats(uint32(len(payload) / 4))
}

func (ses *session) scratch() *buffer {
	if ses.room == nil {
		ses.room = new(buffer)
	}
	return ses.room
}

// values returns the values of a push or assign as float32. It reports false when they are
// not what a client encodes.
func (ses *session) values(h *wire.Header, payload []byte) ([]float32, bool) {
	t := shard.DType(h.Encoding)
	if t == shard.Float32 {
		return ses.floats(payload), true
	}
	x := ses.scratch().floats(h.Count)
	return x, decode(x, payload, t)
}

// request answers a push, an assign, a deletion or a pull.
func (ses *session) request(h *wire.Header, payload []byte) error {
	t := shard.DType(h.Encoding)
	if h.Count > BlockElems || !encodable(t, reads(h.Kind)) {
		return ses.reply(h, outcome{code: codeLength})
	}
	ids, payload, ok := ses.split(h, payload)
	switch {
	case !ok:
		return ses.reply(h, outcome{code: codeLength})
	case reads(h.Kind):
		return ses.pull(h, ids)
	}
	values, ok := ses.values(h, payload)
	if !ok {
		return ses.reply(h, outcome{code: codeLength})
	}
	return ses.answer(h, ses.server.perform(ses.server.ctx, h, ids, values))
}

// split returns the ids in front of a payload, and the rest. It reports false when that is
// not what the header says.
func (ses *session) split(h *wire.Header, payload []byte) (ids []int64, rest []byte, ok bool) {
	values := 0
	if writes(h.Kind) {
		values = encodedLen(int(h.Count), shard.DType(h.Encoding))
	}
	n := len(payload) - values
	switch {
	case n < 0 || n%8 != 0:
		return nil, nil, false
	case !ofRows(h.Kind):
		return nil, payload, n == 0 || h.Kind == wire.Pull
	}
	return ses.idsOf(payload[:n]), payload[n:], true
}

// idsOf views ids, which lie aligned unless something of an odd length came before.
func (ses *session) idsOf(raw []byte) []int64 {
	if ids, ok := wire.IDs(raw); ok {
		return ids
	}
	ses.ids = slices.Grow(ses.ids[:0], len(raw)/8)[:len(raw)/8]
	copy(wire.Bytes(ses.ids), raw)
	return ses.ids
}

// pull answers a pull: the values are copied to where they are sent from.
func (ses *session) pull(h *wire.Header, ids []int64) error {
	n, t := int(h.Count), shard.DType(h.Encoding)
	if ses.out.full(n) {
		if err := ses.flush(); err != nil {
			return err
		}
	}
	room := ses.out.room(n, ses.server.free)
	values := room
	if t != shard.Float32 {
		values = ses.scratch().floats(h.Count)
	}
	o := ses.server.perform(ses.server.ctx, h, ids, values)
	if o.code != codeOK {
		return ses.answer(h, o)
	}
	payload := encode(wire.Bytes(room), values, t)
	if o.after > 0 {
		if ses.hold(1) > maxHeld {
			ses.hold(-1)
			return ses.reply(h, outcome{code: codeRetry})
		}
		d := deferred{change: o.after, session: ses, request: *h, values: ses.server.free.get(), bytes: len(payload)}
		copy(d.values.bytes(len(payload)), payload)
		waits, c := o.copy.await(d)
		if waits {
			return nil
		}
		ses.letGo(d)
		if c != codeOK {
			return ses.reply(h, outcome{code: c})
		}
	}
	r := pullReply(h)
	ses.out.addValues(&r, payload)
	return nil
}

// pullReply is the header of a reply with values.
func pullReply(h *wire.Header) wire.Header {
	r, _ := replyTo(h, outcome{})
	r.Epoch, r.Offset, r.Count, r.Encoding = h.Epoch, h.Offset, h.Count, h.Encoding
	return r
}

// hold counts the buffers that deferred answers hold.
func (ses *session) hold(n int) int {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	ses.held += n
	return ses.held
}

// letGo gives the buffer of a deferred answer back.
func (ses *session) letGo(d deferred) {
	if d.values != nil {
		ses.server.free.put(d.values)
		ses.hold(-1)
	}
}

// late sends a deferred answer, beside whoever has made it true: a client that does not
// read holds nobody up.
func (ses *session) late(d deferred, ok bool) {
	ses.mu.Lock()
	ses.ripe = append(ses.ripe, ripe{d, ok})
	begin := !ses.writing
	ses.writing = true
	ses.mu.Unlock()
	if begin {
		go ses.sendLate() // ends when there is nothing to send, or with the connection
	}
}

// sendLate sends the deferred answers that may be sent.
func (ses *session) sendLate() {
	var out replies
	var spare []ripe
	for {
		ses.mu.Lock()
		batch := ses.ripe
		ses.ripe = spare[:0]
		ses.writing = len(batch) > 0
		ses.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for i := range batch {
			ses.addLate(&out, &batch[i])
		}
		_ = out.send(ses.conn, ses.server.free) // an error ends the session's reader too
		clear(batch)
		spare = batch
	}
}

func (ses *session) addLate(out *replies, l *ripe) {
	if out.full((l.bytes + 3) / 4) {
		_ = out.send(ses.conn, ses.server.free) // see sendLate
	}
	if !l.ok {
		ses.letGo(l.deferred)
		r, text := replyTo(&l.request, ses.server.standing(&l.request))
		out.add(&r, text)
		return
	}
	if l.values == nil {
		r, _ := replyTo(&l.request, outcome{})
		out.add(&r, nil)
		return
	}
	ses.hold(-1)
	r := pullReply(&l.request)
	out.addBuffer(&r, l.values, l.bytes)
}

// answer answers a request without values, now or when its shard is not frozen any more.
func (ses *session) answer(h *wire.Header, o outcome) error {
	s := ses.server
	if o.code == codeOK && o.after > 0 {
		waits, c := o.copy.await(deferred{change: o.after, session: ses, request: *h})
		if waits {
			return nil
		}
		o = outcome{code: c}
	}
	if o.code == codeRetry && o.wait != nil && s.parked.Add(1) <= maxParked {
		parked := *h
		s.spawn(func() { ses.park(parked, o) })
		return nil
	}
	if o.code == codeRetry && o.wait != nil {
		s.parked.Add(-1)
	}
	return ses.reply(h, o)
}

// park answers a request to a frozen shard when it is known who has the shard. The
// payload is not kept: the sender still has it and asks again.
func (ses *session) park(h wire.Header, o outcome) {
	defer ses.server.parked.Add(-1)
	select {
	case <-o.wait:
		o = ses.server.standing(&h)
	case <-ses.conn.Done():
		return
	}
	r, text := replyTo(&h, o)
	_ = sendFrame(ses.conn, &r, text) // an error ends the session's reader too
}

// reply answers request h without values.
func (ses *session) reply(h *wire.Header, o outcome) error {
	r, text := replyTo(h, o)
	return ses.send(&r, text)
}

// flush sends the replies that are waiting, and tells owners what their followers have.
func (ses *session) flush() error {
	ses.taken = 0
	if err := ses.acknowledge(); err != nil {
		return err
	}
	return ses.out.send(ses.conn, ses.server.free)
}

func replyTo(h *wire.Header, o outcome) (r wire.Header, text []byte) {
	if o.code == codeMoved {
		text = []byte(o.to.server)
	}
	return wire.Header{Kind: wire.Reply, Code: uint8(o.code), Shard: h.Shard, Request: h.Request, Epoch: uint64(o.to.epoch)}, text
}

// follow begins a stream that fills a copy; the payload is the owner's name.
func (ses *session) follow(h *wire.Header, payload []byte) error {
	if len(payload) > shard.MaxServerIDBytes {
		return fmt.Errorf("%w: owner's name of %d bytes, limit %d", errStream, len(payload), shard.MaxServerIDBytes)
	}
	r := ses.server.replica(shard.ID(h.Shard))
	err := fmt.Errorf("%w: there is no copy of shard %d", shard.ErrRefused, h.Shard)
	if r != nil {
		err = r.accept(ses, h, shard.ServerID(payload))
	}
	delete(ses.incoming, h.Shard)
	if err != nil {
		return ses.refuse(h.Shard, h.Seq, err)
	}
	in := &incoming{r: r, attempt: h.Seq}
	ses.incoming[h.Shard] = in
	return ses.ack(in)
}

// receive takes a frame of a stream. What follows on one that has ended is passed over:
// its owner has been told.
func (ses *session) receive(h *wire.Header, payload []byte) error {
	in := ses.incoming[h.Shard]
	if in == nil {
		return nil
	}
	if err := ses.server.use(ses.server.ctx, int64(h.Length)); err != nil {
		return err
	}
	err := in.receive(ses, h, payload)
	if err == nil {
		return nil
	}
	if errors.Is(err, errStream) {
		ses.server.log.Warn("follower stream refused", "server", ses.server.cfg.ID, "shard", h.Shard, "err", err)
	}
	delete(ses.incoming, h.Shard)
	return ses.refuse(h.Shard, in.attempt, err)
}

// beat answers that the copies here follow, after saying which of them do not any more.
// Who takes the owner's place from here on knows when that was.
func (ses *session) beat(h *wire.Header) error {
	ses.heard.Store(since())
	for id, in := range ses.incoming {
		if !in.follows(ses) {
			delete(ses.incoming, id)
			if err := ses.refuse(id, in.attempt, fmt.Errorf("%w: the copy does not follow any more", shard.ErrRefused)); err != nil {
				return err
			}
		}
	}
	return ses.send(&wire.Header{Kind: wire.Beat, Request: h.Request}, nil)
}

// acknowledge tells the owners what was received since the last time.
func (ses *session) acknowledge() error {
	for _, in := range ses.incoming {
		if in.behind {
			if err := ses.ack(in); err != nil {
				return err
			}
		}
	}
	return nil
}

func (ses *session) ack(in *incoming) error {
	in.behind = false
	in.r.mu.Lock()
	change := in.r.changes
	in.r.mu.Unlock()
	return ses.send(&wire.Header{
		Kind: wire.Ack, Shard: uint32(in.r.spec.ID), Seq: in.attempt, Floor: in.attempt, Request: change,
	}, nil)
}

// refuse says that there is no stream, or none any more.
func (ses *session) refuse(id uint32, attempt uint64, err error) error {
	text := []byte(err.Error())
	h := wire.Header{Kind: wire.Ack, Code: uint8(codeRefused), Shard: id, Seq: attempt, Floor: attempt}
	return ses.send(&h, text[:min(len(text), maxReplyText)])
}

// send adds a frame to those that leave together.
func (ses *session) send(h *wire.Header, text []byte) error {
	if ses.out.full(0) {
		if err := ses.out.send(ses.conn, ses.server.free); err != nil {
			return err
		}
	}
	ses.out.add(h, text)
	return nil
}
