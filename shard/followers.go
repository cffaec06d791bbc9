package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// MaxFollowers is the largest number of followers of one shard.
const MaxFollowers = 3

var (
	errFollowers    = errors.New("names must be different, not empty and not too long")
	errOwnerFollows = errors.New("the owner is among them")
)

// Followers is a set of servers that follow the owner of a shard, in the order of
// their names, empty names behind. The zero value is the empty set. It is a value:
// comparable, and never changed.
type Followers [MaxFollowers]ServerID

// FollowersOf makes a set of the given servers. It panics with more than
// MaxFollowers.
func FollowersOf(ids ...ServerID) Followers {
	var f Followers
	for _, id := range ids {
		f = f.With(id)
	}
	return f
}

// IDs returns the servers in the set; the slice is the caller's.
func (f Followers) IDs() []ServerID { return slices.Clone(f[:f.Len()]) }

// Len is the number of servers in the set.
func (f Followers) Len() int {
	n := slices.Index(f[:], "")
	if n < 0 {
		return len(f)
	}
	return n
}

// Has says whether a server is in the set.
func (f Followers) Has(id ServerID) bool { return id != "" && slices.Contains(f[:], id) }

// With returns the set with one more server. It panics if the set is full.
func (f Followers) With(id ServerID) Followers {
	if id == "" || f.Has(id) {
		return f
	}
	f[f.Len()] = id // out of range when full
	slices.Sort(f[:f.Len()])
	return f
}

// Without returns the set without a server.
func (f Followers) Without(id ServerID) Followers {
	if !f.Has(id) {
		return f
	}
	var rest Followers
	for _, other := range f.IDs() {
		if other != id {
			rest = rest.With(other)
		}
	}
	return rest
}

func (f Followers) validate() error {
	n := f.Len()
	for i, id := range f {
		if (i >= n) != (id == "") || len(id) > MaxServerIDBytes || (i > 0 && i < n && f[i-1] >= id) {
			return errFollowers
		}
	}
	return nil
}

// MarshalJSON writes the set as a list of names.
func (f Followers) MarshalJSON() ([]byte, error) { return json.Marshal(f.IDs()) }

// UnmarshalJSON reads a list of names.
func (f *Followers) UnmarshalJSON(data []byte) error {
	var ids []ServerID
	if err := json.Unmarshal(data, &ids); err != nil {
		return err
	}
	if len(ids) > MaxFollowers {
		return fmt.Errorf("shard: %d followers, limit %d", len(ids), MaxFollowers)
	}
	*f = Followers{}
	copy(f[:], ids)
	return f.validate()
}

// Onto returns what to write in place of the record cur: owner and pending move of r, with
// the followers of cur. If r commits a move, the followers change with it: that of a
// replication joins; the target of a switch leaves, and its source joins.
func (r Record) Onto(cur Record) Record {
	f := cur.Followers
	p := r.Pending
	isCommit := p != nil && p.Phase == PendingCommitted && (cur.Pending == nil || cur.Pending.Phase != PendingCommitted)
	switch {
	case !isCommit:
	case p.Kind == KindReplicate:
		f = f.With(p.To)
	case p.Kind == KindSwitch:
		f = f.Without(p.To).With(p.From)
	}
	return cur.withFollowers(f, r.Assignment, p)
}

// Succeeds says whether r, which a migration wants to write, is the next step after cur. It
// is not if cur is of another move, or of this one in a phase that does not lead to that of
// r: then somebody else has written cur, and the migration has to read it first.
func (r Record) Succeeds(cur Record) bool {
	was, is := cur.Assignment, r.Assignment
	p, q := cur.Pending, r.Pending
	switch {
	case p == nil && q != nil && q.Phase == PendingMoving:
		return was.Attempt+1 == is.Attempt && was.SameOwner(is)
	case p == nil || was.Attempt != is.Attempt:
		return false
	case q == nil:
		return was == is
	case p.Kind != q.Kind || p.From != q.From || p.To != q.To || p.Epoch != q.Epoch:
		return false
	case p.Kind == KindSwitch && p.Phase == PendingMoving && q.Phase == PendingCommitted && !cur.Followers.Has(p.To):
		return false // it was dropped meanwhile, and may have nothing by now
	}
	return p.Phase == q.Phase || (p.Phase == PendingMoving && q.Phase <= PendingCommitted) ||
		(p.Phase == PendingCommitted && q.Phase == PendingRestoring)
}

func (r Record) withFollowers(f Followers, a Assignment, p *Pending) Record {
	next := Record{Assignment: a, Followers: f, Set: r.Set, Pending: p}
	if f != r.Followers {
		next.Set++
	}
	return next
}

// Drop returns the record without a follower, whatever move is pending. From then on
// the owner may acknowledge what that follower does not have.
func (r Record) Drop(follower ServerID) Record {
	return r.withFollowers(r.Followers.Without(follower), r.Assignment, r.Pending)
}

// Settle returns the order that tells the owner which followers count: EffectSettle, or
// EffectKeep while a move is pending.
func (r Record) Settle() Effect {
	a := r.Assignment
	e := Effect{Kind: EffectSettle, Shard: a.Shard, Server: a.Owner, Epoch: a.Epoch, Attempt: a.Attempt, Followers: r.Followers, Set: r.Set}
	if r.Pending != nil {
		e.Kind = EffectKeep
	}
	return e
}

// Promote returns the record in which a follower owns the shard at the next epoch,
// and a pending move is over. The former owner needs the follower's confirmation for
// each acknowledgement and does not get it any more. The other followers stay: they
// have every acknowledged update, and should the new owner be dead too, one of them is
// next. A server that does not follow gives an error that wraps ErrRecord.
func (r Record) Promote(follower ServerID) (Record, error) {
	a := r.Assignment
	if !r.Followers.Has(follower) {
		return r, fmt.Errorf("%w: shard %d: server %.64q is none of the followers %v", ErrRecord, a.Shard, follower, r.Followers)
	}
	a.Owner, a.Epoch, a.Attempt = follower, a.Epoch+1, a.Attempt+1
	return r.withFollowers(r.Followers.Without(follower), a, nil), nil
}

// Recoverable says whether another server than the owner may have the shard's state: a
// follower, or the other side of a move that is under way.
func (r Record) Recoverable() bool { return r.Pending != nil || r.Followers.Len() > 0 }

// Refill returns the record in which another server owns the shard, at the next epoch,
// after it has been filled from a checkpoint: the state is lost. A record that has
// followers or a pending move gives an error that wraps ErrRecord: the state may not be.
func (r Record) Refill(to ServerID) (Record, error) {
	a := r.Assignment
	if r.Recoverable() {
		return r, fmt.Errorf("%w: shard %d has followers %v, or a pending move", ErrRecord, a.Shard, r.Followers)
	}
	a.Owner, a.Epoch, a.Attempt = to, a.Epoch+1, a.Attempt+1
	return r.withFollowers(Followers{}, a, nil), nil
}
