package shard

import (
	"errors"
	"fmt"
	"math"
)

// ErrUnexpectedEvent is wrapped by the error of Step for an event that has no
// transition in the present phase: a late or doubled outcome, or an abort that
// comes after the commit. The move is unchanged and goes on.
var ErrUnexpectedEvent = errors.New("shard: unexpected event")

// maxMoveEpoch leaves room for the two epochs that a move may use up.
const maxMoveEpoch = math.MaxUint64 - 2

// Outcome is how a move ended.
type Outcome uint8

// Outcomes. The zero value means that the move is under way.
const (
	// Moved means that the target owns and serves the shard, or, after
	// KindReplicate, follows its owner.
	Moved Outcome = iota + 1
	// Aborted means that the source owns and serves the shard as before
	// (invariant I5), or that nothing was begun.
	Aborted
	// Lost means that neither source nor target can serve: servers died. A
	// follower, if the record names one, takes over (Record.Promote); else the
	// shard has to be filled from a checkpoint.
	Lost
	// Superseded means that another coordinator ended this move and began a
	// later one.
	Superseded
)

// String is the name of the outcome as used in errors, logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Moved:
		return "moved"
	case Aborted:
		return "aborted"
	case Lost:
		return "lost"
	case Superseded:
		return "superseded"
	}
	return "under way"
}

// Migration is one move of one shard as its coordinator sees it: a value that
// Begin, Replicate or Resume makes and Step changes. The source From owned the
// shard at Epoch when the move began. FailedAt and Reason say where and why the
// first thing went wrong.
type Migration struct {
	Shard    ID
	Kind     Kind
	From, To ServerID
	Epoch    Epoch
	Attempt  uint64
	Phase    Phase
	Outcome  Outcome
	FailedAt Phase
	Reason   string

	sourceGone, targetGone bool         // the server was declared dead
	stored                 PendingPhase // last known phase in the store
	back                   Phase        // whose store outcome is being read, in PhaseRead
	lost                   bool         // no live server holds the state
}

// EffectKind is what a coordinator has to do next.
type EffectKind uint8

// Effects. Those that name a server are calls to it; the server answers as the
// Copy machine says. Store effects are one compare-and-swap of Effect.Record.
const (
	// EffectPersistPending writes the pending move to the store.
	EffectPersistPending EffectKind = iota + 1
	// EffectPrepare has the target allocate an empty copy.
	EffectPrepare
	// EffectFollow has the source stream the shard to the target and forward pushes
	// that touch what was sent. It returns when the target has caught up. With
	// Join, the source acknowledges nothing from then on that the target has not
	// confirmed.
	EffectFollow
	// EffectFreeze has the source stop acknowledging. It returns when the target
	// and every follower have confirmed all that the source has applied.
	EffectFreeze
	// EffectCommit makes the target the owner at Epoch+1, in the store.
	EffectCommit
	// EffectActivate has the target serve at Epoch+1.
	EffectActivate
	// EffectRelease has the source answer Moved and free its copy.
	EffectRelease
	// EffectClearPending removes the pending move from the store.
	EffectClearPending
	// EffectPersistAbort rules out a commit, in the store. It precedes every EffectThaw:
	// a commit of this or of a former coordinator that is still on its way
	// to the store fails from then on.
	EffectPersistAbort
	// EffectThaw has the source serve on at its epoch.
	EffectThaw
	// EffectDiscard has the target drop its copy. It is tried once.
	EffectDiscard
	// EffectCommitRestore makes the source the owner again at Epoch+2, in the store.
	EffectCommitRestore
	// EffectRestore has the source thaw at Epoch+2.
	EffectRestore
	// EffectSettle tells the owner that no join is under way at this attempt and
	// which followers count.
	EffectSettle
	// EffectDemote makes the frozen source a follower, once the former follower
	// owns the shard.
	EffectDemote
	// EffectKeep tells the owner which followers count, whatever is under way.
	EffectKeep
	// EffectDepose tells a server that somebody else owns the shard.
	EffectDepose
	// EffectReadRecord reads the record from the store; the outcome is an
	// EventRecord.
	EffectReadRecord
	// EffectDone ends the move: nothing is left to do.
	EffectDone
)

// String is the name of the effect as used in errors and logs.
func (k EffectKind) String() string {
	names := [...]string{
		EffectPersistPending: "persist_pending", EffectPrepare: "prepare", EffectFollow: "follow", EffectFreeze: "freeze", EffectCommit: "commit",
		EffectActivate: "activate", EffectRelease: "release", EffectClearPending: "clear_pending", EffectPersistAbort: "persist_abort", EffectThaw: "thaw",
		EffectDiscard: "discard", EffectCommitRestore: "commit_restore", EffectRestore: "restore",
		EffectSettle: "settle", EffectDemote: "demote", EffectKeep: "keep", EffectDepose: "depose", EffectReadRecord: "read_record", EffectDone: "done",
	}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("effect(%d)", uint8(k))
}

// Effect is one thing to do: an order to Server, or, if Record is set, a write to the store.
//
// An order carries Epoch, Attempt, Peer and Join, and Followers and Set of the record as the
// coordinator knows it at that time.
//
// A write replaces the record that the coordinator knows by Record.Onto that record, which may
// have other followers by now. It is a compare-and-swap under the revision that came from the
// read before Begin or Resume, from a later EffectReadRecord, or from the coordinator's own
// last write. Never read a revision just for the swap: then it protects nothing.
type Effect struct {
	Kind    EffectKind
	Shard   ID
	Server  ServerID
	Peer    ServerID // the other server of the move
	Epoch   Epoch
	Attempt uint64
	Join    bool // the target of EffectFollow is to be a follower
	Record  *Record

	Followers Followers
	Set       uint64
}

// EventKind is what happened to an effect, or to a server.
type EventKind uint8

// Events. The first group are successes, one per effect.
const (
	EventPersisted EventKind = iota + 1
	EventPrepared
	EventFollowed
	EventFrozen
	EventCommitted
	EventActivated
	EventReleased
	EventCleared
	EventAbortPersisted
	EventThawed
	EventDiscarded
	EventRestoreCommitted
	EventRestored
	EventSettled
	EventDemoted
	// EventRecord carries what EffectReadRecord found. A key that does not
	// exist is a record of the shard without owner.
	EventRecord
	// EventConflict means that a compare-and-swap found another revision.
	EventConflict
	// EventUnknown means that the outcome of a store effect is not known.
	EventUnknown
	// EventFailed means that a step was refused and will not happen, not even
	// late: the server or the store said so.
	EventFailed
	// EventTimeout means that the outcome of a step did not come by its
	// deadline; it may still happen.
	EventTimeout
	// EventSourceDown and EventTargetDown mean that the server is dead: it
	// cannot acknowledge at any epoch any more, because its process ended or
	// its lease ran out and it knows. Silence alone is an EventTimeout, and so is
	// the late news that an earlier run of it has died, when the present one
	// has taken an order of this move.
	EventSourceDown
	EventTargetDown
	// EventAbort asks for the move to be undone; after the commit it is
	// refused.
	EventAbort
	// EventSuperseded means that the store has a later attempt: a follower was
	// promoted meanwhile.
	EventSuperseded
)

// String is the name of the event as used in errors and logs.
func (k EventKind) String() string {
	names := [...]string{
		EventPersisted: "persisted", EventPrepared: "prepared", EventFollowed: "followed", EventFrozen: "frozen",
		EventCommitted: "committed", EventActivated: "activated", EventReleased: "released", EventCleared: "cleared",
		EventAbortPersisted: "abort_persisted", EventThawed: "thawed", EventDiscarded: "discarded",
		EventRestoreCommitted: "restore_committed", EventRestored: "restored",
		EventSettled: "settled", EventDemoted: "demoted", EventRecord: "record",
		EventConflict: "conflict", EventUnknown: "unknown", EventFailed: "failed", EventTimeout: "timeout",
		EventSourceDown: "source_down", EventTargetDown: "target_down", EventAbort: "abort",
		EventSuperseded: "superseded",
	}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("event(%d)", uint8(k))
}

// Success is the event of an effect that was performed, 0 if there is none.
func (k EffectKind) Success() EventKind {
	kinds := [...]EventKind{
		EffectPersistPending: EventPersisted, EffectPrepare: EventPrepared, EffectFollow: EventFollowed, EffectFreeze: EventFrozen,
		EffectCommit: EventCommitted, EffectActivate: EventActivated, EffectRelease: EventReleased, EffectClearPending: EventCleared,
		EffectPersistAbort: EventAbortPersisted, EffectThaw: EventThawed, EffectDiscard: EventDiscarded,
		EffectCommitRestore: EventRestoreCommitted, EffectRestore: EventRestored, EffectSettle: EventSettled, EffectDemote: EventDemoted,
	}
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return 0
}

// Event is one outcome fed to Step. Step, if set, names the effect that failed,
// timed out or conflicted, and the event is refused if that effect is not the
// one under way; zero means the effect under way. Record is read for
// EventRecord alone. Reason is for the log and for Migration.Reason.
type Event struct {
	Kind   EventKind
	Step   EffectKind
	Reason string
	Record *Record
}

// Done says whether the move has ended.
func (m Migration) Done() bool { return m.Phase == PhaseDone }

// Begin starts a move of a shard to another server. If that server is a follower
// it takes over at once (KindSwitch). A refused move gives a *MoveError, and a
// record with a pending one an error that wraps ErrRecord: Resume that first.
func Begin(r Record, to ServerID) (Migration, []Effect, error) {
	if r.Followers.Has(to) {
		return begin(r, to, KindSwitch)
	}
	return begin(r, to, KindMove)
}

// Replicate starts to make a server a follower. Refusals and errors are those of
// Begin; besides, a server that follows already and a set that is full.
func Replicate(r Record, to ServerID) (Migration, []Effect, error) {
	refused := Refusal(0)
	switch {
	case r.Followers.Has(to):
		refused = AlreadyFollower
	case r.Followers.Len() == MaxFollowers:
		refused = TooManyFollowers
	}
	if refused != 0 {
		a := r.Assignment
		return Migration{}, nil, &MoveError{
			Index: -1, Move: Move{a.Shard, a.Owner, to}, Reason: refused,
			Detail: fmt.Sprintf("the shard has %d followers, limit %d", r.Followers.Len(), MaxFollowers),
		}
	}
	return begin(r, to, KindReplicate)
}

func begin(r Record, to ServerID, kind Kind) (Migration, []Effect, error) {
	a := r.Assignment
	if e := judgeAssignment(a, to); e != nil {
		return Migration{}, nil, e
	}
	if r.Pending != nil {
		return Migration{}, nil, fmt.Errorf("%w: shard %d has move %d pending", ErrRecord, a.Shard, r.Pending.Attempt)
	}
	if a.Epoch > maxMoveEpoch || a.Attempt == math.MaxUint64 {
		return Migration{}, nil, fmt.Errorf("%w: shard %d: epoch %d or attempt %d has no room for a move", ErrRecord, a.Shard, a.Epoch, a.Attempt)
	}
	m := Migration{Shard: a.Shard, Kind: kind, From: a.Owner, To: to, Epoch: a.Epoch, Attempt: a.Attempt + 1, Phase: PhasePersist}
	return m, m.effects(), nil
}

// Resume takes over the move that a coordinator left behind in the store: it
// undoes what was not committed and finishes what was. The error wraps
// ErrRecord if the record contradicts itself or has no pending move.
func Resume(r Record) (Migration, []Effect, error) {
	if err := r.Validate(); err != nil {
		return Migration{}, nil, err
	}
	p := r.Pending
	if p == nil {
		return Migration{}, nil, fmt.Errorf("%w: shard %d has no move pending", ErrRecord, r.Assignment.Shard)
	}
	m := Migration{
		Shard: p.Shard, Kind: p.Kind, From: p.From, To: p.To, Epoch: p.Epoch, Attempt: p.Attempt,
		Phase: PhaseRead, FailedAt: p.FailedAt, Reason: p.Reason,
	}
	return m.Step(Event{Kind: EventRecord, Record: &r, Reason: "the coordinator was restarted"})
}

// Step takes one event and returns the move after it and the effects to
// perform, in order; at most one of them at present. On error the move is
// returned unchanged with no effects: the event was late, doubled or
// impossible, and the effect under way stays under way.
func (m Migration) Step(ev Event) (Migration, []Effect, error) {
	if ev.Step != 0 && ev.Step != m.Phase.effect() {
		return m, nil, m.unexpected(ev, "the effect under way is another")
	}
	t, ok := transitions[transitionKey{m.Phase, ev.Kind}]
	if ev.Kind == EventSuperseded && !m.Done() {
		t, ok = superseded, true
	}
	if !ok {
		return m, nil, m.unexpected(ev, "it has no transition")
	}
	next, err := t(m, ev)
	if err != nil {
		return m, nil, err
	}
	noted := ev.Kind == EventSourceDown || ev.Kind == EventTargetDown || ev.Kind == EventAbort
	if noted && next.Phase == m.Phase {
		return next, nil, nil // the effect under way stays under way
	}
	return next, next.effects(), nil
}

func (m Migration) unexpected(ev Event, why string) error {
	of := ""
	if ev.Step != 0 {
		of = fmt.Sprintf(" of %v", ev.Step)
	}
	return fmt.Errorf("%w: shard %d: %v%s in phase %v: %s", ErrUnexpectedEvent, m.Shard, ev.Kind, of, m.Phase, why)
}

// effects are what the present phase asks for.
func (m Migration) effects() []Effect {
	e := Effect{Kind: m.Phase.effect(), Shard: m.Shard, Epoch: m.Epoch, Attempt: m.Attempt}
	switch m.Phase {
	case PhasePrepare, PhaseDiscard:
		e.Server, e.Peer = m.To, m.From
	case PhaseActivate:
		e.Server, e.Peer, e.Epoch = m.To, m.From, m.Epoch+1
	case PhaseFollow, PhaseFreeze, PhaseThaw, PhaseSettle:
		e.Server, e.Peer, e.Join = m.From, m.To, m.Kind == KindReplicate
	case PhaseRelease, PhaseDemote:
		e.Server, e.Peer, e.Epoch = m.From, m.To, m.Epoch+1
	case PhaseRestore:
		e.Server, e.Peer, e.Epoch = m.From, m.To, m.Epoch+2
	case PhasePersist, PhaseCommit, PhaseAbort, PhaseRestoreCommit, PhaseClear:
		r := m.record()
		e.Record = &r
		e.Epoch = r.Assignment.Epoch
	}
	return []Effect{e}
}

// record is what the store holds once the effect of the present phase is done.
func (m Migration) record() Record {
	p := &Pending{
		Shard: m.Shard, Kind: m.Kind, From: m.From, To: m.To, Epoch: m.Epoch, Attempt: m.Attempt,
		FailedAt: m.FailedAt, Reason: m.Reason,
	}
	a := Assignment{Shard: m.Shard, Owner: m.From, Epoch: m.Epoch, Attempt: m.Attempt}
	switch m.Phase {
	case PhaseCommit:
		p.Phase = PendingCommitted
		a.Owner, a.Epoch = p.owner()
	case PhaseAbort:
		p.Phase = PendingAborting
	case PhaseRestoreCommit:
		p.Phase = PendingRestoring
		a.Owner, a.Epoch = p.owner()
	case PhaseClear:
		p.Phase = m.stored
		a.Owner, a.Epoch = p.owner()
		p = nil
	default:
		p.Phase = PendingMoving
	}
	return Record{Assignment: a, Pending: p}
}
