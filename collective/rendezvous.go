package collective

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elasticps/elasticps/shard/store"
)

// rendezvous is where ranks agree on the next group. meet blocks until this rank is in one
// that is later than the proposal's.
type rendezvous interface {
	meet(ctx context.Context, p proposal) (roster, error)
}

// outcome returns the group that a rank is in, or why it is in none; ok is false while it has
// to wait.
func (r *round) outcome(p proposal) (next roster, ok bool, err error) {
	if r.has(p) {
		return r.Last, true, nil
	}
	if i := r.joined(p.Self.Name); i >= 0 && r.Joined[i].Nonce != p.Self.Nonce {
		return roster{}, true, fmt.Errorf("%w: another member came as %q", ErrConflict, p.Self.Name)
	}
	if r.joined(p.Self.Name) < 0 {
		err := r.refuses(p)
		if err == nil {
			err = fmt.Errorf("%w: the group went on to epoch %d without member %q", ErrConflict, r.Last.Epoch, p.Self.Name)
		}
		return roster{}, true, err
	}
	return roster{}, false, nil
}

// Local is where ranks of one process find each other. The zero value is ready; it may
// serve any number of groups.
type Local struct {
	mu      sync.Mutex
	rounds  map[string]round
	changed chan struct{} // closed at each change
	origins map[string]*origin
}

// enter makes the origin of a rank known.
func (l *Local) enter(o *origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.origins == nil {
		l.origins, l.rounds, l.changed = map[string]*origin{}, map[string]round{}, make(chan struct{})
	}
	l.origins[o.self.Nonce] = o
}

func (l *Local) leave(o *origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.origins, o.self.Nonce)
}

func (l *Local) origin(nonce string) *origin {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.origins[nonce]
}

func (l *Local) meet(ctx context.Context, p proposal) (roster, error) {
	began := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.rounds[p.Group].take(p)
	if err != nil {
		return roster{}, err
	}
	l.rounds[p.Group] = r
	close(l.changed)
	l.changed = make(chan struct{})
	for {
		r := l.rounds[p.Group]
		if next, ok, err := r.outcome(p); ok {
			return next, err
		}
		if ctx.Err() != nil {
			return roster{}, &MissingError{Names: r.missing(), Waited: time.Since(began), Err: context.Cause(ctx)}
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
}

// storeRendezvous keeps the round of a group in one key of a store.
type storeRendezvous struct{ store Store }

func (s storeRendezvous) key(group string) string { return "collective/" + group }

// meet puts the proposal into the round and waits until it is complete.
func (s storeRendezvous) meet(ctx context.Context, p proposal) (roster, error) {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := s.join(ctx, p)
	if err != nil {
		return roster{}, err
	}
	missing := func() error {
		return &MissingError{Names: r.missing(), Waited: time.Since(began), Err: context.Cause(ctx)}
	}
	events, err := s.store.Watch(ctx, s.key(p.Group))
	if err != nil && ctx.Err() != nil {
		return roster{}, missing()
	}
	if err != nil {
		return roster{}, fmt.Errorf("collective: rendezvous: %w", err)
	}
	for {
		if next, ok, err := r.outcome(p); ok {
			return next, err
		}
		e, ok := <-events
		if !ok && ctx.Err() != nil {
			return roster{}, missing()
		}
		if !ok {
			return roster{}, fmt.Errorf("collective: rendezvous: %w", store.ErrClosed)
		}
		if e.Kind == store.Put && e.Entry.Key == s.key(p.Group) {
			if r, err = decodeRound(e.Entry.Value); err != nil {
				return roster{}, err
			}
		}
	}
}

// join puts the proposal into the round.
func (s storeRendezvous) join(ctx context.Context, p proposal) (round, error) {
	for {
		var r round
		e, err := s.store.Get(ctx, s.key(p.Group))
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return r, fmt.Errorf("collective: rendezvous: %w", err)
		default:
			if r, err = decodeRound(e.Value); err != nil {
				return r, err
			}
		}
		if r, err = r.take(p); err != nil {
			return r, err
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return r, fmt.Errorf("collective: rendezvous: %w", err)
		}
		_, err = s.store.CompareAndSwap(ctx, s.key(p.Group), e.Revision, raw)
		if err == nil {
			return r, nil
		}
		// Somebody else came first, or it is not known whether the change took place: both
		// show when it is read again.
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnknown) || ctx.Err() != nil {
			return r, fmt.Errorf("collective: rendezvous: %w", err)
		}
	}
}

func decodeRound(raw []byte) (round, error) {
	var r round
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("%w: the store's record of the group: %w", ErrRefused, err)
	}
	return r, nil
}
