package ps

import (
	"context"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// Requests to a server on the same node: calls within the process.

// localServer returns the server if it runs on the same node, else nil.
func localServer(ctx context.Context, n *actor.Node, info serverInfo) *Server {
	if info.Node != n.Name() {
		return nil
	}
	s, err := actor.Call[*Server](ctx, n, n.Ref(info.Process), localRequest{})
	if err != nil {
		return nil
	}
	return s
}

// performLocal is a request to a server in this process: no copy, no socket. With a
// device, or followers, it takes time, as a socket would.
func performLocal(ctx context.Context, s *Server, k *call) {
	if s.cfg.Device != nil {
		go k.performOn(ctx, s)
		return
	}
	k.performOn(ctx, s)
}

func (k *call) performOn(ctx context.Context, s *Server) {
	k.began = time.Now()
	o := k.perform(ctx, s)
	if o.after > 0 || o.wait != nil {
		if s.cfg.Device == nil {
			go k.settle(ctx, s, o)
		} else {
			k.settle(ctx, s, o)
		}
		return
	}
	k.answerLocal(o)
}

// settle waits until an answer holds, or another may be had.
func (k *call) settle(ctx context.Context, s *Server, o outcome) {
	if o.after > 0 {
		o = s.confirm(ctx, &k.header, o)
	}
	if o.code == codeRetry && o.wait != nil {
		timer := time.NewTimer(attemptTimeout) // the routes may have changed
		defer timer.Stop()
		select {
		case <-o.wait:
		case <-timer.C:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	k.answerLocal(o)
}

func (k *call) answerLocal(o outcome) {
	if o.code == codeMoved {
		k.text = string(o.to.server)
	}
	k.took, k.out = time.Since(k.began), o
	k.leg.answered(k)
}

// confirm returns the answer OK when the followers have what it speaks of.
func (s *Server) confirm(ctx context.Context, h *wire.Header, o outcome) outcome {
	wake := make(chan bool, 1)
	waits, c := o.copy.await(deferred{change: o.after, wake: wake})
	if !waits {
		return outcome{code: c}
	}
	select {
	case ok := <-wake:
		if ok {
			return outcome{}
		}
		return s.standing(h)
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return outcome{code: codeRetry}
}

// perform hands the caller's slice to the server. What would be rounded on the way over a
// socket is rounded here too, so that results do not depend on where a server is.
func (k *call) perform(ctx context.Context, s *Server) outcome {
	t := shard.DType(k.header.Encoding)
	if t == shard.Float32 {
		return s.perform(ctx, &k.header, k.ids, k.values)
	}
	if reads(k.header.Kind) {
		o := s.perform(ctx, &k.header, k.ids, k.values)
		round(k.values, k.values, t)
		return o
	}
	b := s.free.get()
	defer s.free.put(b)
	round(b.floats(k.header.Count), k.values, t)
	return s.perform(ctx, &k.header, k.ids, b.floats(k.header.Count))
}
