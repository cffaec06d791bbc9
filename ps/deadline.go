package ps

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"
)

// deadlines gives operations whose context has no deadline one. Making a context costs
// more than a small push, so operations under one context share it for a while: each has
// at least the timeout, and at most an eighth more.
type deadlines struct {
	timeout time.Duration
	shared  atomic.Pointer[sharedDeadline]
}

type sharedDeadline struct {
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	fresh  time.Time // until when operations may begin under it
}

func keep() {}

// of returns ctx if it has a deadline, else a context under it that has one. The caller
// cancels it at the end.
func (d *deadlines) of(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, keep
	}
	now, s := time.Now(), d.shared.Load()
	switch {
	case s != nil && now.Before(s.fresh) && s.ctx.Err() == nil:
		if same(s.parent, ctx) {
			return s.ctx, keep
		}
	case identified(ctx):
		made := d.share(ctx, now)
		if d.shared.CompareAndSwap(s, made) {
			return made.ctx, keep
		}
		made.cancel(nil)
	}
	return context.WithTimeout(ctx, d.timeout)
}

func same(a, b context.Context) bool { return identified(b) && a == b }

// identified reports whether a context can be compared with any other: pointers can, and
// what has no content; a value may hold what cannot.
func identified(ctx context.Context) bool {
	t := reflect.TypeOf(ctx)
	return t.Kind() == reflect.Pointer || (t.Size() == 0 && t.Comparable())
}

func (d *deadlines) share(parent context.Context, now time.Time) *sharedDeadline {
	s := &sharedDeadline{parent: parent, fresh: now.Add(d.timeout / 8)}
	timed, stop := context.WithDeadline(parent, now.Add(d.timeout+d.timeout/8))
	s.ctx, s.cancel = context.WithCancelCause(timed)
	context.AfterFunc(s.ctx, stop)
	return s
}

// close ends the present shared deadline and the operations under it; others end with
// their connections.
func (d *deadlines) close(cause error) {
	if s := d.shared.Load(); s != nil {
		s.cancel(cause)
	}
}
