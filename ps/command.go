package ps

import (
	"context"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// commandKind is what a command asks for.
type commandKind uint8

const (
	commandStep  commandKind = iota // the effect of a move that Step names
	commandHost                     // create a shard that never existed
	commandEvict                    // drop a shard that was created here but recorded elsewhere: it never had a client
)

// maxStep bounds how long a step may take whatever the coordinator asks for.
const maxStep = time.Hour

// flight is a step under way. The same command arriving again waits for the same
// outcome instead of starting over.
type flight struct {
	ended chan struct{}
	err   error
}

type flightKey struct {
	kind    commandKind
	step    shard.EffectKind
	shard   shard.ID
	epoch   shard.Epoch
	attempt uint64
}

// answer performs a command once, however often it is sent, and answers it.
func (s *Server) answer(req *actor.Request, m command) {
	key := flightKey{m.Kind, m.Step, shard.ID(m.Shard), shard.Epoch(m.Epoch), m.Attempt}
	s.mu.Lock()
	f, running := s.flights[key]
	if !running {
		f = &flight{ended: make(chan struct{})}
		s.flights[key] = f
	}
	s.mu.Unlock()
	if !running {
		ctx, cancel := context.WithTimeout(s.ctx, min(max(m.Timeout, time.Millisecond), maxStep))
		f.err = s.execute(ctx, m)
		cancel()
		s.mu.Lock()
		delete(s.flights, key)
		s.mu.Unlock()
		close(f.ended)
	}
	<-f.ended // bounded by the step's own timeout
	if f.err != nil {
		s.log.Warn("step failed", "server", s.cfg.ID, "step", m.Step, "shard", m.Shard, "epoch", m.Epoch, "err", f.err)
	}
	if req == nil {
		return
	}
	if f.err != nil {
		req.Fail(f.err)
		return
	}
	reply := commandReply{}
	if r := s.replica(key.shard); r != nil {
		r.mu.Lock()
		reply.Bytes = r.stateBytes()
		r.mu.Unlock()
	}
	req.Reply(reply)
}

// execute performs one order. shard.Copy decides whether it is taken; each is
// idempotent.
func (s *Server) execute(ctx context.Context, m command) error {
	if int(m.Shard) >= len(s.shards) {
		return fmt.Errorf("%w: shard %d, the job has %d", shard.ErrRefused, m.Shard, len(s.shards))
	}
	order := shard.Effect{
		Kind: m.Step, Shard: shard.ID(m.Shard), Server: s.cfg.ID, Peer: m.Peer.ID,
		Epoch: shard.Epoch(m.Epoch), Attempt: m.Attempt,
	}
	r, err := s.copyOf(order.Shard)
	if err != nil {
		return err
	}
	switch m.Kind {
	case commandHost:
		return r.host(order)
	case commandEvict:
		return r.evict(order)
	}
	switch m.Step {
	case shard.EffectFollow:
		return s.follow(ctx, r, order, m.Peer)
	case shard.EffectFreeze:
		return r.freeze(ctx, order)
	}
	return r.take(order)
}

// copyOf returns this server's copy of a shard, an absent one if it has none.
func (s *Server) copyOf(id shard.ID) (*replica, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("%w: server %q", ErrClosed, s.cfg.ID)
	}
	r := s.replicas[id]
	if r == nil {
		r = newReplica(s.job, s.shards[id])
		s.replicas[id] = r
	}
	return r, nil
}

// host creates a shard with its first values.
func (r *replica) host(order shard.Effect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.copy.MayAcknowledge(order.Epoch):
		return nil
	case r.copy.State != shard.Absent || r.copy.Attempt != 0: // late: it has been moved since
		return fmt.Errorf("%w: host of shard %d at epoch %d: the copy is %v at epoch %d", shard.ErrRefused, order.Shard, order.Epoch, r.copy.State, r.copy.Epoch)
	}
	r.allocate()
	r.initialize()
	r.become(shard.ServeFirst(shard.Assignment{Shard: order.Shard, Epoch: order.Epoch, Attempt: order.Attempt}))
	return nil
}

// evict drops a copy that no move has touched.
func (r *replica) evict(order shard.Effect) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.copy.MayAcknowledge(order.Epoch) && r.copy.Attempt == 0 {
		r.free()
		r.become(shard.Copy{})
	}
	return nil
}

// take carries out an order that needs nobody else.
func (r *replica) take(order shard.Effect) error {
	r.mu.Lock()
	was := r.copy
	next, err := r.copy.Step(order)
	if err != nil || next == was {
		r.mu.Unlock()
		return err
	}
	f := r.follower
	switch next.State {
	case shard.Receiving:
		r.allocate()
	case shard.Released, shard.Absent:
		r.free()
	}
	r.become(next)
	r.mu.Unlock()
	f.end(errNotFollowing) // every order but Follow and Freeze ends a stream
	return nil
}

// prepared reports whether r waits for the stream of that move.
func (r *replica) prepared(attempt uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copy.State == shard.Receiving && r.copy.Attempt == attempt && r.progress.frames == 0
}

// follow connects to the target and streams the shard there.
func (s *Server) follow(ctx context.Context, r *replica, order shard.Effect, target serverInfo) error {
	r.mu.Lock()
	f := r.follower
	r.mu.Unlock()
	if f != nil && f.attempt == order.Attempt {
		return f.drained() // asked again; the answer was lost
	}
	conn, err := s.dialPeer(ctx, target)
	if err != nil {
		return err
	}
	hello := wire.Header{Kind: wire.Follow, Shard: uint32(order.Shard), Seq: order.Attempt, Floor: order.Attempt}
	if err := sendFrame(conn, &hello, nil); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseWithError(context.Cause(ctx)) })
	h, _, err := readReply(conn)
	stop()
	if err == nil && code(h.Code) != codeOK {
		err = conn.CloseWithError(fmt.Errorf("%w: server %q did not expect shard %d", shard.ErrRefused, target.ID, order.Shard))
	}
	if err != nil {
		return err
	}
	return r.follow(ctx, conn, order, s.free)
}

// dialPeer opens a data connection to another server.
func (s *Server) dialPeer(ctx context.Context, peer serverInfo) (*stream.Conn, error) {
	if local := localServer(ctx, s.cfg.Node, peer); local != nil {
		return local.pipe(), nil
	}
	return dial(ctx, peer, s.cfg.TLS, stream.Config{WriteTimeout: followTimeout})
}
