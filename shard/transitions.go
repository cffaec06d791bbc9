package shard

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Phase is where a move stands: which effect is under way. Each phase but the
// last has exactly one.
type Phase uint8

// Phases of a move. The way of a move that succeeds goes from PhasePersist to
// PhaseClear in the order below; the others undo it or find out what the store
// holds.
const (
	PhasePersist Phase = iota + 1
	PhasePrepare
	PhaseFollow
	PhaseFreeze
	PhaseCommit
	PhaseActivate
	PhaseRelease
	PhaseClear
	PhaseAbort
	PhaseThaw
	PhaseDiscard
	PhaseRestoreCommit
	PhaseRestore
	PhaseSettle
	PhaseDemote
	PhaseRead
	PhaseDone
)

// effect is the effect under way in the phase.
func (p Phase) effect() EffectKind {
	kinds := [...]EffectKind{
		PhasePersist: EffectPersistPending, PhasePrepare: EffectPrepare, PhaseFollow: EffectFollow, PhaseFreeze: EffectFreeze,
		PhaseCommit: EffectCommit, PhaseActivate: EffectActivate, PhaseRelease: EffectRelease, PhaseClear: EffectClearPending,
		PhaseAbort: EffectPersistAbort, PhaseThaw: EffectThaw, PhaseDiscard: EffectDiscard, PhaseRestoreCommit: EffectCommitRestore,
		PhaseRestore: EffectRestore, PhaseSettle: EffectSettle, PhaseDemote: EffectDemote, PhaseRead: EffectReadRecord, PhaseDone: EffectDone,
	}
	if int(p) < len(kinds) {
		return kinds[p]
	}
	return 0
}

// String is the name of the effect that is under way in the phase.
func (p Phase) String() string {
	if k := p.effect(); k != 0 {
		return k.String()
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

type transitionKey struct {
	from Phase
	on   EventKind
}

// action makes the move after a transition of the move before it.
type action func(Migration, Event) (Migration, error)

// transitions is every legal transition; it is never changed. What is not in
// it is refused by Step.
var transitions = map[transitionKey]action{
	// Before the first write nothing has happened that would need undoing.
	{PhasePersist, EventPersisted}:  persisted,
	{PhasePersist, EventFailed}:     endAborted,
	{PhasePersist, EventConflict}:   read,
	{PhasePersist, EventUnknown}:    read,
	{PhasePersist, EventTimeout}:    read,
	{PhasePersist, EventSourceDown}: noteFailed,
	{PhasePersist, EventTargetDown}: noteFailed,
	{PhasePersist, EventAbort}:      noteFailed,

	// Up to the commit everything can be undone.
	{PhasePrepare, EventPrepared}:   to(PhaseFollow),
	{PhasePrepare, EventFailed}:     abort,
	{PhasePrepare, EventTimeout}:    abort,
	{PhasePrepare, EventSourceDown}: abort,
	{PhasePrepare, EventTargetDown}: abort,
	{PhasePrepare, EventAbort}:      abort,

	{PhaseFollow, EventFollowed}:   followed,
	{PhaseFollow, EventFailed}:     abort,
	{PhaseFollow, EventTimeout}:    abort,
	{PhaseFollow, EventSourceDown}: abort,
	{PhaseFollow, EventTargetDown}: abort,
	{PhaseFollow, EventAbort}:      abort,

	{PhaseFreeze, EventFrozen}:     to(PhaseCommit),
	{PhaseFreeze, EventFailed}:     abort,
	{PhaseFreeze, EventTimeout}:    abort,
	{PhaseFreeze, EventSourceDown}: abort,
	{PhaseFreeze, EventTargetDown}: abort,
	{PhaseFreeze, EventAbort}:      abort,

	// The target has everything, so the death of the source alone no longer
	// matters. The store decides; its answer is awaited, or read.
	{PhaseCommit, EventCommitted}:  committed,
	{PhaseCommit, EventFailed}:     abort,
	{PhaseCommit, EventConflict}:   read,
	{PhaseCommit, EventUnknown}:    read,
	{PhaseCommit, EventTimeout}:    read,
	{PhaseCommit, EventSourceDown}: note,
	{PhaseCommit, EventTargetDown}: note,

	// Until the target serves, the source holds the whole frozen state.
	{PhaseActivate, EventActivated}:  activated,
	{PhaseActivate, EventFailed}:     restoreOrLose,
	{PhaseActivate, EventTimeout}:    to(PhaseActivate),
	{PhaseActivate, EventSourceDown}: note,
	{PhaseActivate, EventTargetDown}: restoreOrLose,

	// A switch makes the source a follower before the target serves: should the
	// target die, the source is promoted again like any follower.
	{PhaseDemote, EventDemoted}:    to(PhaseActivate),
	{PhaseDemote, EventFailed}:     to(PhaseActivate),
	{PhaseDemote, EventTimeout}:    to(PhaseActivate),
	{PhaseDemote, EventSourceDown}: to(PhaseActivate),
	{PhaseDemote, EventTargetDown}: note,

	// A new follower counts from the commit on; its owner waits for it already.
	{PhaseSettle, EventSettled}:    to(PhaseClear),
	{PhaseSettle, EventFailed}:     to(PhaseClear),
	{PhaseSettle, EventTimeout}:    to(PhaseSettle),
	{PhaseSettle, EventSourceDown}: to(PhaseClear),
	{PhaseSettle, EventTargetDown}: note,

	// From here on only forward.
	{PhaseRelease, EventReleased}:   to(PhaseClear),
	{PhaseRelease, EventFailed}:     to(PhaseClear),
	{PhaseRelease, EventTimeout}:    to(PhaseRelease),
	{PhaseRelease, EventSourceDown}: to(PhaseClear),
	{PhaseRelease, EventTargetDown}: note,

	{PhaseClear, EventCleared}:    end,
	{PhaseClear, EventFailed}:     read,
	{PhaseClear, EventConflict}:   read,
	{PhaseClear, EventUnknown}:    read,
	{PhaseClear, EventTimeout}:    read,
	{PhaseClear, EventSourceDown}: note,
	{PhaseClear, EventTargetDown}: note,

	// Undo before the commit.
	{PhaseAbort, EventAbortPersisted}: aborted,
	{PhaseAbort, EventFailed}:         read,
	{PhaseAbort, EventConflict}:       read,
	{PhaseAbort, EventUnknown}:        read,
	{PhaseAbort, EventTimeout}:        read,
	{PhaseAbort, EventSourceDown}:     note,
	{PhaseAbort, EventTargetDown}:     note,

	{PhaseThaw, EventThawed}:     discard,
	{PhaseThaw, EventFailed}:     lose,
	{PhaseThaw, EventTimeout}:    to(PhaseThaw),
	{PhaseThaw, EventSourceDown}: lose,
	{PhaseThaw, EventTargetDown}: note,

	{PhaseDiscard, EventDiscarded}:  to(PhaseClear),
	{PhaseDiscard, EventFailed}:     to(PhaseClear),
	{PhaseDiscard, EventTimeout}:    to(PhaseClear),
	{PhaseDiscard, EventSourceDown}: note,
	{PhaseDiscard, EventTargetDown}: to(PhaseClear),

	// Undo after the commit.
	{PhaseRestoreCommit, EventRestoreCommitted}: restoreCommitted,
	{PhaseRestoreCommit, EventFailed}:           read,
	{PhaseRestoreCommit, EventConflict}:         read,
	{PhaseRestoreCommit, EventUnknown}:          read,
	{PhaseRestoreCommit, EventTimeout}:          read,
	{PhaseRestoreCommit, EventSourceDown}:       note,
	{PhaseRestoreCommit, EventTargetDown}:       note,

	{PhaseRestore, EventRestored}:   discard,
	{PhaseRestore, EventFailed}:     lose,
	{PhaseRestore, EventTimeout}:    to(PhaseRestore),
	{PhaseRestore, EventSourceDown}: lose,
	{PhaseRestore, EventTargetDown}: note,

	// Find out what the store holds.
	{PhaseRead, EventRecord}:     reconcile,
	{PhaseRead, EventFailed}:     to(PhaseRead),
	{PhaseRead, EventConflict}:   to(PhaseRead),
	{PhaseRead, EventUnknown}:    to(PhaseRead),
	{PhaseRead, EventTimeout}:    to(PhaseRead),
	{PhaseRead, EventSourceDown}: note,
	{PhaseRead, EventTargetDown}: note,
}

func to(p Phase) action {
	return func(m Migration, ev Event) (Migration, error) {
		m, _ = note(m, ev)
		m.Phase = p
		return m, nil
	}
}

// note remembers who died.
func note(m Migration, ev Event) (Migration, error) {
	m.sourceGone = m.sourceGone || ev.Kind == EventSourceDown
	m.targetGone = m.targetGone || ev.Kind == EventTargetDown
	return m, nil
}

// noteFailed remembers also the first thing that went wrong, and where.
func noteFailed(m Migration, ev Event) (Migration, error) {
	m, _ = note(m, ev)
	if m.Reason == "" {
		m.FailedAt, m.Reason = m.Phase, ev.Reason
		if m.Phase == PhaseRead && m.back != 0 {
			m.FailedAt = m.back
		}
		if m.Reason == "" {
			m.Reason = fmt.Sprintf("%v: %v", m.FailedAt, ev.Kind)
		}
		m.Reason = strings.ToValidUTF8(m.Reason[:min(len(m.Reason), MaxReasonBytes)], "")
	}
	return m, nil
}

func abort(m Migration, ev Event) (Migration, error) {
	m, _ = noteFailed(m, ev)
	m.Phase = PhaseAbort
	return m, nil
}

func read(m Migration, ev Event) (Migration, error) {
	m, _ = note(m, ev)
	m.back, m.Phase = m.Phase, PhaseRead
	return m, nil
}

func persisted(m Migration, ev Event) (Migration, error) {
	m.stored, m.Phase = PendingMoving, PhasePrepare
	if m.Kind == KindSwitch {
		m.Phase = PhaseFreeze // the follower has everything but what is under way
	}
	if m.Reason != "" {
		m.Phase = PhaseAbort
	}
	return m, nil
}

// followed goes on with a target that has caught up.
func followed(m Migration, _ Event) (Migration, error) {
	m.Phase = PhaseFreeze
	if m.Kind == KindReplicate {
		m.Phase = PhaseCommit
	}
	return m, nil
}

func committed(m Migration, ev Event) (Migration, error) {
	m.stored, m.Phase = PendingCommitted, PhaseActivate
	switch {
	case m.Kind == KindReplicate:
		m.Phase = PhaseSettle
	case m.Kind == KindSwitch && !m.sourceGone:
		m.Phase = PhaseDemote
	case m.targetGone:
		return restoreOrLose(m, ev)
	}
	return m, nil
}

func activated(m Migration, _ Event) (Migration, error) {
	m.Phase = PhaseRelease
	if m.sourceGone || m.Kind == KindSwitch {
		m.Phase = PhaseClear
	}
	return m, nil
}

func restoreOrLose(m Migration, ev Event) (Migration, error) {
	m, _ = noteFailed(m, ev)
	m.Phase = PhaseRestoreCommit
	if m.sourceGone || m.Kind == KindSwitch { // then a follower is promoted, the former source perhaps
		m.lost, m.Phase = true, PhaseClear
	}
	return m, nil
}

func aborted(m Migration, ev Event) (Migration, error) {
	m.stored, m.Phase = PendingAborting, PhaseThaw
	if m.sourceGone {
		return lose(m, ev)
	}
	return m, nil
}

func restoreCommitted(m Migration, ev Event) (Migration, error) {
	m.stored, m.Phase = PendingRestoring, PhaseRestore
	if m.sourceGone {
		return lose(m, ev)
	}
	return m, nil
}

// lose goes on with the undoing although the source cannot serve.
func lose(m Migration, ev Event) (Migration, error) {
	m, _ = noteFailed(m, ev)
	m.lost = m.Kind != KindReplicate
	return discard(m, ev)
}

func discard(m Migration, _ Event) (Migration, error) {
	m.Phase = PhaseDiscard
	if m.targetGone || m.Kind == KindSwitch { // it follows as before
		m.Phase = PhaseClear
	}
	return m, nil
}

func end(m Migration, _ Event) (Migration, error) {
	m.Phase, m.Outcome = PhaseDone, Aborted
	if m.stored == PendingCommitted {
		m.Outcome = Moved
	}
	if m.lost {
		m.Outcome = Lost
	}
	return m, nil
}

func endAborted(m Migration, ev Event) (Migration, error) {
	m, _ = noteFailed(m, ev)
	m.Phase, m.Outcome = PhaseDone, Aborted
	return m, nil
}

func superseded(m Migration, _ Event) (Migration, error) { return endSuperseded(m) }

func endSuperseded(m Migration) (Migration, error) {
	m.Phase, m.Outcome = PhaseDone, Superseded
	return m, nil
}

const didNotTakePlace = "the outcome was unknown, and the store shows that it did not take place"

// reconcile goes on from what the store holds, whatever this coordinator
// thought before: the store is the truth.
func reconcile(m Migration, ev Event) (Migration, error) {
	if ev.Record == nil {
		return m, m.unexpected(ev, "it has no record")
	}
	r := *ev.Record
	if err := r.Validate(); err != nil {
		return m, err
	}
	a := r.Assignment
	if a.Shard != m.Shard {
		return m, fmt.Errorf("%w: record of shard %d, the move is of shard %d", ErrRecord, a.Shard, m.Shard)
	}
	switch {
	case a.Attempt > m.Attempt:
		return endSuperseded(m)
	case a.Attempt < m.Attempt && m.stored == 0:
		// Should the write still come late, the next coordinator to read the
		// record undoes it.
		ev.Reason = cmp.Or(ev.Reason, didNotTakePlace)
		return endAborted(m, ev)
	case a.Attempt < m.Attempt:
		return m, fmt.Errorf("%w: shard %d: attempt %d in the store after attempt %d", ErrRecord, m.Shard, a.Attempt, m.Attempt)
	case r.Pending == nil:
		return endAsStored(m, r)
	case r.Pending.Kind != m.Kind || r.Pending.From != m.From || r.Pending.To != m.To || r.Pending.Epoch != m.Epoch:
		return endSuperseded(m)
	}
	return resumeAt(m, ev, *r.Pending)
}

// endAsStored ends a move that is over in the store: this coordinator's clear
// was done, or another's.
func endAsStored(m Migration, r Record) (Migration, error) {
	p := Pending{Kind: m.Kind, From: m.From, To: m.To, Epoch: m.Epoch}
	phases := []PendingPhase{PendingCommitted, PendingAborting, PendingRestoring}
	if m.Kind == KindReplicate && !r.Followers.Has(m.To) {
		phases = phases[1:] // the owner tells nothing
	}
	for _, p.Phase = range phases {
		owner, epoch := p.owner()
		if r.Assignment == (Assignment{Shard: m.Shard, Owner: owner, Epoch: epoch, Attempt: m.Attempt}) {
			m.stored = p.Phase
			return end(m, Event{})
		}
	}
	return endSuperseded(m)
}

func resumeAt(m Migration, ev Event, p Pending) (Migration, error) {
	back := m.back
	wasCommitted := m.stored == PendingCommitted || m.stored == PendingRestoring
	m.stored = p.Phase
	if m.Reason == "" && p.Reason != "" {
		m.Reason, m.FailedAt = p.Reason, p.FailedAt
	}
	if back == PhaseClear && p.Phase != PendingMoving {
		m.Phase = PhaseClear
		return m, nil
	}
	switch p.Phase {
	case PendingMoving:
		if wasCommitted {
			return m, errors.Join(m.unexpected(ev, "the store went back"), ErrRecord)
		}
		if back == PhasePersist {
			return persisted(m, ev)
		}
		ev.Reason = cmp.Or(ev.Reason, didNotTakePlace)
		return abort(m, ev)
	case PendingAborting:
		return aborted(m, ev)
	case PendingCommitted:
		if back == PhaseRestoreCommit {
			m.Phase = PhaseRestoreCommit
			return m, nil
		}
		m.Reason, m.FailedAt = "", 0 // it went through after all
		return committed(m, ev)
	}
	return restoreCommitted(m, ev)
}
