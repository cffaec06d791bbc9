package shard

import (
	"errors"
	"fmt"
)

// ErrRefused is wrapped by the errors of Copy.Step: the copy will not do what
// it is told, now or later, for this attempt. The coordinator feeds it to
// Migration.Step as EventFailed.
var ErrRefused = errors.New("shard: refused")

// CopyState is what one server holds of one shard.
type CopyState uint8

// States of a copy. The zero value is Absent.
const (
	// Absent means that the server holds nothing.
	Absent CopyState = iota
	// Receiving means that the target's copy is being filled.
	Receiving
	// CaughtUp means that the copy is a few messages behind its source: that of a
	// target at the end of a move, or of a follower.
	CaughtUp
	// Serving means that the server is the owner and acknowledges pushes.
	Serving
	// Following means Serving, with a target that is being filled.
	Following
	// Frozen means that the source has stopped acknowledging. It never thaws
	// by itself.
	Frozen
	// Released means that the source has given the shard away: it answers
	// Moved with Peer and Epoch.
	Released
)

// String is the name of the state as used in errors and logs.
func (s CopyState) String() string {
	names := [...]string{"absent", "receiving", "caught_up", "serving", "following", "frozen", "released"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Copy is the server's side of the protocol: what one server holds of one
// shard, and which orders of a coordinator it takes. It is a value; the zero
// value holds nothing, as a server does after a restart. Every order may come
// twice, late, or from a coordinator that was replaced: orders of an attempt
// that is over are refused, doubled ones change nothing.
type Copy struct {
	State CopyState
	// Epoch is the epoch at which the copy serves or is frozen; for a target
	// that of the source; for a released copy that of the new owner.
	Epoch Epoch
	// Attempt is the last move that this copy took part in, and Ended that
	// the move is over for it.
	Attempt uint64
	Ended   bool
	// Peer is the other server of the move.
	Peer ServerID
	// Followers, of an owner, are those whose confirmation an acknowledgement
	// needs, as of Set of the record; and Joining one more, which the record may
	// have or not, while it becomes a follower.
	Followers Followers
	Set       uint64
	Joining   ServerID
}

// ServeFirst is the copy of a first owner, or of one that was filled from a
// checkpoint.
func ServeFirst(a Assignment) Copy {
	return Copy{State: Serving, Epoch: a.Epoch, Attempt: a.Attempt, Ended: true}
}

// Serves says whether the copy is an owner's that is not frozen.
func (c Copy) Serves() bool { return c.State == Serving || c.State == Following }

// Owns says whether the copy is an owner's: one that serves, or is frozen.
func (c Copy) Owns() bool { return c.Serves() || c.State == Frozen }

// MayAcknowledge says whether the copy may acknowledge a write sent for the
// given epoch (invariant I2, one writer).
func (c Copy) MayAcknowledge(epoch Epoch) bool { return c.Serves() && c.Epoch == epoch }

// Redirect says who answers a request for an epoch at which this copy does not
// serve: the owner, empty for the server of this copy itself, and its epoch. It returns
// false if the server cannot tell, so that the request has to be sent again later.
func (c Copy) Redirect(epoch Epoch) (owner ServerID, at Epoch, ok bool) {
	switch {
	case c.Serves():
		return "", c.Epoch, true
	case c.State == Released, c.State == CaughtUp && epoch < c.Epoch && c.Peer != "":
		return c.Peer, c.Epoch, true
	}
	return "", 0, false
}

// Awaits says whether an acknowledgement needs the confirmation of a server.
func (c Copy) Awaits(id ServerID) bool { return c.Followers.Has(id) || (id != "" && id == c.Joining) }

// Host makes the copy the owner's, with first values or those of a checkpoint. It is refused
// if the attempt is over here.
func (c Copy) Host(a Assignment) (Copy, error) {
	isOver := c.Attempt > 0 && a.Attempt <= c.Attempt
	switch {
	case c.MayAcknowledge(a.Epoch):
		return c, nil
	case isOver, c.State != Absent && c.State != Released:
		return c, fmt.Errorf("%w: host of shard %d at epoch %d attempt %d: the copy is %v at epoch %d attempt %d",
			ErrRefused, a.Shard, a.Epoch, a.Attempt, c.State, c.Epoch, c.Attempt)
	}
	return ServeFirst(a), nil
}

// Deny is for a server that is asked whether it has the shard that the record gives it at an
// attempt. It returns false if the copy may yet serve: that is no answer. If not, the server says
// that it has nothing, and on that word another one may get the shard: the attempt is over
// here, and an order of it that comes later is refused.
func (c Copy) Deny(attempt uint64) (Copy, bool) {
	switch {
	case c.State != Absent && c.State != Receiving && c.State != Released:
		return c, false
	case attempt <= c.Attempt:
		return c, true
	case c.State == Released:
		c.Attempt = attempt // still answers Moved
		return c, true
	}
	return Copy{Attempt: attempt, Ended: true}, true
}

// Join notes that the target of the stream under way counts from now on, although the
// record may not have it yet.
func (c Copy) Join(attempt uint64) (Copy, error) {
	if c.State != Following || attempt != c.Attempt {
		return c, fmt.Errorf("%w: join of attempt %d: the copy is %v at attempt %d", ErrRefused, attempt, c.State, c.Attempt)
	}
	c.Joining = c.Peer
	return c, nil
}

// Fill notes that the last block of the stream from the source has arrived. It is
// refused for any attempt but the one that fills this copy.
func (c Copy) Fill(attempt uint64) (Copy, error) {
	if (c.State != Receiving && c.State != CaughtUp) || attempt != c.Attempt {
		return c, fmt.Errorf("%w: stream of attempt %d: the copy is %v at attempt %d", ErrRefused, attempt, c.State, c.Attempt)
	}
	c.State = CaughtUp
	return c, nil
}

// Refollow has a follower go on with another owner, whose state is the same as its
// own: the one that a move has just brought in.
func (c Copy) Refollow(owner ServerID, epoch Epoch, attempt uint64) (Copy, error) {
	if c.State != CaughtUp || attempt < c.Attempt || epoch < c.Epoch {
		return c, fmt.Errorf("%w: follow %.64q at epoch %d attempt %d: the copy is %v at epoch %d attempt %d",
			ErrRefused, owner, epoch, attempt, c.State, c.Epoch, c.Attempt)
	}
	c.Peer, c.Epoch, c.Attempt, c.Ended = owner, epoch, attempt, true
	return c, nil
}

// order is the kind of an effect together with how its attempt compares with
// that of the copy.
type order struct {
	kind  EffectKind
	newer bool
}

// copyRule says in which states an order is taken and where it leads. In the
// states of done it has been carried out already.
type copyRule struct {
	from, done []CopyState
	next       CopyState
	ends       bool // the attempt is over for this copy
}

// copyRules is every legal order but those of count; it is never changed.
var copyRules = map[order]copyRule{
	{EffectPrepare, true}:  {from: []CopyState{Absent, Receiving, CaughtUp, Released}, next: Receiving},
	{EffectPrepare, false}: {done: []CopyState{Receiving, CaughtUp}},
	{EffectFollow, true}:   {from: []CopyState{Serving, Following}, next: Following},
	{EffectFollow, false}:  {done: []CopyState{Following, Frozen}},
	{EffectFreeze, true}:   {from: []CopyState{Serving, Following}, next: Frozen}, // a switch
	{EffectFreeze, false}:  {from: []CopyState{Following}, done: []CopyState{Frozen}, next: Frozen},
	// A switch, or a promotion: that of a source too, which the record has as a follower
	// since a switch was committed and which has not been demoted yet.
	{EffectActivate, true}:  {from: []CopyState{CaughtUp, Frozen}, next: Serving, ends: true},
	{EffectActivate, false}: {from: []CopyState{CaughtUp}, next: Serving, ends: true},
	{EffectRelease, false}:  {from: []CopyState{Frozen}, next: Released, ends: true},
	{EffectDemote, false}:   {from: []CopyState{Frozen}, next: CaughtUp, ends: true},
	{EffectThaw, true}:      {from: []CopyState{Serving, Following, Frozen}, next: Serving, ends: true},
	{EffectThaw, false}:     {from: []CopyState{Following, Frozen}, next: Serving, ends: true},
	{EffectDiscard, true}:   {from: []CopyState{Absent, Receiving, CaughtUp}, next: Absent, ends: true},
	{EffectDiscard, false}:  {from: []CopyState{Receiving, CaughtUp}, done: []CopyState{Absent}, next: Absent, ends: true},
	{EffectRestore, false}:  {from: []CopyState{Frozen}, next: Serving, ends: true},
	{EffectDepose, true}:    {from: []CopyState{Serving, Following, Frozen}, next: Released, ends: true},
	{EffectDepose, false}:   {from: []CopyState{Frozen}, next: Released, ends: true},
}

// endedIn is the state in which a copy is after an order that ended its
// attempt; the same order again is done already.
func endedIn(kind EffectKind) (CopyState, bool) {
	switch kind {
	case EffectActivate, EffectThaw, EffectRestore:
		return Serving, true
	case EffectRelease, EffectDepose:
		return Released, true
	case EffectDemote:
		return CaughtUp, true
	case EffectDiscard:
		return Absent, true
	}
	return 0, false
}

// Step takes one order and returns the copy after it. An order that was
// carried out before returns the copy unchanged and no error. An error wraps
// ErrRefused; the copy is unchanged then.
func (c Copy) Step(e Effect) (Copy, error) {
	if e.Attempt < c.Attempt {
		return c, c.refuse(e, "a later attempt has begun")
	}
	if e.Kind == EffectSettle || e.Kind == EffectKeep {
		return c.count(e)
	}
	newer := e.Attempt > c.Attempt
	if gone := c.Attempt == 0 && c.State == Absent; gone && (e.Kind == EffectRelease || e.Kind == EffectDiscard) {
		// The server was restarted. There is nothing to free; the attempt is
		// noted so that late orders of it are refused.
		return Copy{Attempt: e.Attempt, Ended: true}, nil
	}
	// A follower that was demoted or has changed its owner may be let go all the same.
	if c.Ended && !newer && (e.Kind != EffectDiscard || c.State != CaughtUp) {
		if state, ok := endedIn(e.Kind); ok && state == c.State && (state == Absent || e.Epoch == c.Epoch) {
			return c, nil
		}
		return c, c.refuse(e, "the attempt is over here")
	}
	if c.State == Released && newer && e.Kind == EffectDiscard {
		c.Attempt = e.Attempt // still answers Moved
		return c, nil
	}
	return c.apply(e, copyRules[order{e.Kind, newer}])
}

// count takes the set of followers that an owner waits for. EffectSettle says also that
// nobody is joining at its attempt.
func (c Copy) count(e Effect) (Copy, error) {
	if !c.Owns() || e.Epoch != c.Epoch || (e.Kind == EffectSettle && c.State == Frozen) {
		return c, c.refuse(e, "not in this state, or at another epoch")
	}
	if e.Set > c.Set {
		c.Followers, c.Set = e.Followers, e.Set
	}
	if e.Kind == EffectSettle {
		c.State, c.Attempt, c.Ended, c.Joining = Serving, e.Attempt, true, ""
	}
	return c, nil
}

func (c Copy) apply(e Effect, rule copyRule) (Copy, error) {
	for _, s := range rule.done {
		if s == c.State {
			return c, nil
		}
	}
	for _, s := range rule.from {
		if s == c.State {
			return c.transition(e, rule)
		}
	}
	return c, c.refuse(e, "not in this state")
}

func (c Copy) transition(e Effect, rule copyRule) (Copy, error) {
	want := c.Epoch
	switch e.Kind {
	case EffectActivate, EffectRelease, EffectDemote:
		want++
	case EffectRestore:
		want += 2
	case EffectPrepare, EffectDiscard:
		want = e.Epoch
	}
	later := e.Kind == EffectDepose || (e.Kind == EffectActivate && e.Attempt > c.Attempt) // owners between may have died
	if e.Epoch != want && (!later || e.Epoch < want) {
		return c, c.refuse(e, fmt.Sprintf("the epoch must be %d", want))
	}
	next := Copy{State: rule.next, Epoch: e.Epoch, Attempt: e.Attempt, Ended: rule.ends, Peer: e.Peer}
	switch next.State {
	case Absent:
		next.Epoch, next.Peer = 0, ""
	case Serving, Following, Frozen:
		next.Followers, next.Set, next.Joining = c.Followers, c.Set, c.Joining
		if e.Kind == EffectActivate {
			next.Followers, next.Set = e.Followers, e.Set
		}
		if e.Kind == EffectThaw && c.Peer == c.Joining {
			next.Joining = "" // the commit is ruled out
		}
	}
	return next, nil
}

func (c Copy) refuse(e Effect, why string) error {
	return fmt.Errorf("%w: %v of shard %d at epoch %d attempt %d: the copy is %v at epoch %d attempt %d: %s",
		ErrRefused, e.Kind, e.Shard, e.Epoch, e.Attempt, c.State, c.Epoch, c.Attempt, why)
}
