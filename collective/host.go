package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
)

// hosting is the rendezvous of ranks that know each other's addresses: the first member
// that is not dead keeps the round, the others bring it their proposals.
type hosting struct{ o *origin }

// meet hosts the round, or asks the host; when a host of a group that existed cannot be
// reached, it is dead, and the next member is the host.
func (h hosting) meet(ctx context.Context, p proposal) (roster, error) {
	o, began := h.o, time.Now()
	for attempt := 0; ; attempt++ {
		hosts := h.candidates(p, attempt)
		if len(hosts) == 0 {
			return roster{}, fmt.Errorf("%w: no member is left to ask", ErrRankLost)
		}
		if hosts[0].Name == o.self.Name {
			return o.hostOwn(ctx, p)
		}
		next, err := h.ask(ctx, hosts[0], p)
		switch {
		case err == nil:
			return next, nil
		case errors.Is(err, ErrRefused), errors.Is(err, ErrConflict):
			return roster{}, err
		case ctx.Err() != nil:
			return roster{}, &MissingError{
				Names: []string{hosts[0].Name}, Addresses: []string{hosts[0].Address}, Waited: time.Since(began), Err: errors.Join(context.Cause(ctx), err),
			}
		case p.Last.Epoch > 0:
			p.Dead = append(p.Dead, hosts[0].Name)
		default:
			pause(ctx, dialPause) // it may be about to listen
		}
	}
}

// pause waits, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// candidates are the members that may host, in order. A newcomer asks one address after the
// other: whoever is there takes it in, or knows who does.
func (h hosting) candidates(p proposal, attempt int) []member {
	if p.Last.Epoch > 0 {
		return slices.DeleteFunc(slices.Clone(p.Last.Members), func(m member) bool { return slices.Contains(p.Dead, m.Name) })
	}
	cfg := &h.o.cfg
	switch {
	case cfg.Size > 0 && cfg.Rank == 0:
		return []member{h.o.self}
	case cfg.Size > 0:
		return []member{{Name: "rank-0", Address: cfg.Addresses[0]}}
	case len(cfg.Addresses) == 1:
		return nil // its own
	}
	i := attempt % (len(cfg.Addresses) - 1)
	if i >= cfg.Rank {
		i++
	}
	return []member{{Name: fmt.Sprint("member at ", cfg.Addresses[i]), Address: cfg.Addresses[i]}}
}

// ask brings a proposal to the host and waits for the next group.
func (h hosting) ask(ctx context.Context, host member, p proposal) (roster, error) {
	conn, a, err := h.o.dial(ctx, host, hello{Group: p.Group, Link: linkKey{Kind: linkMeet, From: p.Self.Nonce}, Proposal: &p})
	if err != nil {
		return roster{}, err
	}
	defer conn.Close()
	if a.Host != nil && host.Name != a.Host.Name {
		return h.ask(ctx, *a.Host, p)
	}
	if a.Roster == nil || a.Roster.rankOf(p.Self.Name) < 0 {
		return roster{}, fmt.Errorf("%w: the host answered with no group of this member", ErrRefused)
	}
	return *a.Roster, nil
}

// propose puts a proposal into the round that this rank hosts.
func (o *origin) propose(p proposal) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.latest.Epoch > o.hosted.Last.Epoch {
		o.hosted.Last = o.latest
	}
	r, err := o.hosted.take(p)
	if err != nil {
		return err
	}
	o.hosted = r
	o.notify()
	return nil
}

// settled waits for the end of the hosted round, for one proposal.
func (o *origin) settled(ctx context.Context, p proposal, gone <-chan struct{}) (roster, error) {
	began := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if next, ok, err := o.hosted.outcome(p); ok {
			return next, err
		}
		if ctx.Err() != nil {
			return roster{}, &MissingError{Names: o.hosted.missing(), Waited: time.Since(began), Err: context.Cause(ctx)}
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-gone:
			o.mu.Lock()
			return roster{}, fmt.Errorf("%w: member %q has gone while it waited", ErrRankLost, p.Self.Name)
		}
		o.mu.Lock()
	}
}

func (o *origin) hostOwn(ctx context.Context, p proposal) (roster, error) {
	if err := o.propose(p); err != nil {
		return roster{}, err
	}
	return o.settled(ctx, p, nil)
}

// otherHost is who takes in a newcomer, nil if this rank does.
func (o *origin) otherHost(p proposal) *member {
	o.mu.Lock()
	defer o.mu.Unlock()
	if p.Last.Epoch > 0 || p.founds() || o.latest.Epoch == 0 || o.hosted.joined(o.self.Name) >= 0 {
		return nil
	}
	if first := o.latest.Members[0]; first.Name != o.self.Name {
		return &first
	}
	return nil
}

// host answers another rank's proposal when the round is over.
func (o *origin) host(conn *stream.Conn, p proposal) error {
	_ = conn.NetConn().SetReadDeadline(time.Time{}) // the round may take as long as the ranks want
	if other := o.otherHost(p); other != nil {
		return errors.Join(sendJSON(conn, answer{Host: other}), conn.Flush())
	}
	if err := o.propose(p); err != nil {
		return err
	}
	o.running.Go(func() { // it says no more, so what is read is its end
		_, _ = conn.Next(1)
		_ = conn.Close()
	})
	next, err := o.settled(o.ctx, p, conn.Done())
	if err != nil {
		return err
	}
	if err := sendJSON(conn, answer{Roster: &next}); err != nil {
		return err
	}
	return conn.Flush()
}
