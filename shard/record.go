package shard

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
)

// MaxRecordBytes is the longest encoding of a Record, in bytes.
const MaxRecordBytes = 8 << 10

// MaxReasonBytes is the longest reason that is kept of a failed move; the rest
// is cut off.
const MaxReasonBytes = 512

// ErrRecord is wrapped by errors about a record that is damaged or that
// contradicts itself or the move in hand.
var ErrRecord = errors.New("shard: record")

// PendingPhase is how far a move has come, as the store knows it.
type PendingPhase uint8

// Phases in the store.
const (
	// PendingMoving means that the source owns the shard and the move may
	// still be undone or committed.
	PendingMoving PendingPhase = iota + 1
	// PendingAborting means that the move will not be committed: the source
	// serves on at its epoch, and the target's copy is to be dropped.
	PendingAborting
	// PendingCommitted means that the target owns the shard at Epoch+1.
	PendingCommitted
	// PendingRestoring means that the target died before it served, and the
	// source owns the shard again, at Epoch+2.
	PendingRestoring
)

// Kind is what a move is for.
type Kind uint8

// Kinds of moves.
const (
	// KindMove takes the shard to a server that has nothing of it.
	KindMove Kind = iota
	// KindSwitch takes it to a follower, and makes the former owner one.
	KindSwitch
	// KindReplicate makes the target a follower; the owner stays.
	KindReplicate
)

// String is the name of the kind as used in errors, logs and metrics.
func (k Kind) String() string {
	names := [...]string{"move", "switch", "replicate"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// String is the name of the phase as used in errors and logs.
func (p PendingPhase) String() string {
	switch p {
	case PendingMoving:
		return "moving"
	case PendingAborting:
		return "aborting"
	case PendingCommitted:
		return "committed"
	case PendingRestoring:
		return "restoring"
	}
	return fmt.Sprintf("pending(%d)", uint8(p))
}

// Pending is a move under way, as written in the store: enough for whoever
// comes after a coordinator that died to finish or undo it.
type Pending struct {
	Shard    ID           `json:"shard"`
	Kind     Kind         `json:"kind,omitempty"`
	From     ServerID     `json:"from"`
	To       ServerID     `json:"to"`
	Epoch    Epoch        `json:"epoch"` // of the source when the move began
	Attempt  uint64       `json:"attempt"`
	Phase    PendingPhase `json:"phase"`
	FailedAt Phase        `json:"failed_at,omitempty"`
	Reason   string       `json:"reason,omitempty"`
}

// owner is who owns the shard, and since when, in the phase of the move.
func (p *Pending) owner() (ServerID, Epoch) {
	switch {
	case p.Phase == PendingCommitted && p.Kind != KindReplicate:
		return p.To, p.Epoch + 1
	case p.Phase == PendingRestoring:
		return p.From, p.Epoch + 2
	}
	return p.From, p.Epoch
}

// Record is what the store holds of one shard, under one key, so that owner,
// followers and pending move change in one compare-and-swap. Pending is nil when
// no move is under way. Followers have every update that was acknowledged, so each
// of them may take the owner's place; Set grows with each change of them.
type Record struct {
	Assignment Assignment `json:"assignment"`
	Followers  Followers  `json:"followers,omitzero"`
	Set        uint64     `json:"set,omitempty"`
	Pending    *Pending   `json:"pending,omitempty"`
}

// Equal says whether two records hold the same.
func (r Record) Equal(o Record) bool {
	if r.Assignment != o.Assignment || r.Followers != o.Followers || r.Set != o.Set || (r.Pending == nil) != (o.Pending == nil) {
		return false
	}
	return r.Pending == nil || *r.Pending == *o.Pending
}

// Validate reports a record that contradicts itself; the error wraps
// ErrRecord.
func (r Record) Validate() error {
	a, p := r.Assignment, r.Pending
	if len(a.Owner) > MaxServerIDBytes || (a.Owner != "" && a.Epoch == 0) {
		return fmt.Errorf("%w: shard %d: owner name of %d bytes at epoch %d", ErrRecord, a.Shard, len(a.Owner), a.Epoch)
	}
	if err := r.Followers.validate(); err != nil || r.Followers.Has(a.Owner) {
		return fmt.Errorf("%w: shard %d: followers %v of owner %.64q: %w", ErrRecord, a.Shard, r.Followers, a.Owner, cmp.Or(err, errOwnerFollows))
	}
	if p == nil {
		return nil
	}
	restores := p.Phase == PendingRestoring && p.Kind != KindMove // only a move leaves the source frozen after the commit
	if p.Phase < PendingMoving || p.Phase > PendingRestoring || p.Kind > KindReplicate || restores {
		return fmt.Errorf("%w: shard %d: phase %v of a %v", ErrRecord, a.Shard, p.Phase, p.Kind)
	}
	owner, epoch := p.owner()
	fits := p.Shard == a.Shard && p.Attempt == a.Attempt && a.Owner == owner && a.Epoch == epoch
	named := p.From != "" && p.To != "" && p.From != p.To && len(p.To) <= MaxServerIDBytes && len(p.Reason) <= MaxReasonBytes
	if !fits || !named || p.Epoch == 0 || p.Epoch > maxMoveEpoch || p.FailedAt > PhaseDone {
		return fmt.Errorf("%w: shard %d: owner %.64q at epoch %d attempt %d contradicts move %d from %.64q to %.64q at epoch %d, %v",
			ErrRecord, a.Shard, a.Owner, a.Epoch, a.Attempt, p.Attempt, p.From, p.To, p.Epoch, p.Phase)
	}
	return nil
}

// Encode returns the record as JSON, so that an operator can read the store by
// eye.
func (r Record) Encode() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("%w: shard %d: %w", ErrRecord, r.Assignment.Shard, err)
	}
	if len(data) > MaxRecordBytes {
		return nil, fmt.Errorf("%w: shard %d: %d bytes, limit %d", ErrRecord, r.Assignment.Shard, len(data), MaxRecordBytes)
	}
	return data, nil
}

// DecodeRecord reads what Encode wrote and validates it. The error wraps
// ErrRecord.
func DecodeRecord(data []byte) (Record, error) {
	if len(data) > MaxRecordBytes {
		return Record{}, fmt.Errorf("%w: %d bytes, limit %d", ErrRecord, len(data), MaxRecordBytes)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	if err := r.Validate(); err != nil {
		return Record{}, err
	}
	return r, nil
}
