package shard

import (
	"errors"
	"fmt"
)

// MaxPlanMoves is the largest number of moves of one plan.
const MaxPlanMoves = MaxShards

// ErrMoveRefused is wrapped by every *MoveError.
var ErrMoveRefused = errors.New("shard: move refused")

// Server is one parameter server as the placement sees it.
type Server struct {
	ID ServerID
	// CapacityBytes bounds the parameters placed on the server; 0 is no bound.
	CapacityBytes int64
	// Draining means that the server gets no shards and is to be emptied.
	Draining bool
	// Domain is the failure domain. Followers are placed in another one than their
	// owner where there is one.
	Domain string
}

// Move takes one shard from its owner to another server.
type Move struct {
	Shard    ID
	From, To ServerID
}

// Refusal says why a move is refused; it answers "why not there".
type Refusal uint8

// Reasons to refuse a move.
const (
	// UnknownShard means that the map does not hold the shard.
	UnknownShard Refusal = iota + 1
	// UnknownServer means that the target is not among the servers.
	UnknownServer
	// DrainingTarget means that the target is being emptied.
	DrainingTarget
	// SameServer means that source and target are the same.
	SameServer
	// DuplicateMove means that the plan moves the shard twice.
	DuplicateMove
	// NotOwner means that the source does not own the shard.
	NotOwner
	// Unplaced means that the shard has no owner to move it from.
	Unplaced
	// OverCapacity means that the target would hold more than its capacity.
	OverCapacity
	// TooManyMoves means that the plan is longer than MaxPlanMoves.
	TooManyMoves
	// AlreadyFollower means that the server follows the shard's owner already.
	AlreadyFollower
	// TooManyFollowers means that the shard has MaxFollowers followers.
	TooManyFollowers
)

// String is the code used in errors, logs and metrics.
func (r Refusal) String() string {
	names := [...]string{
		UnknownShard: "unknown_shard", UnknownServer: "unknown_server", DrainingTarget: "draining_target",
		SameServer: "same_server", DuplicateMove: "duplicate_move", NotOwner: "not_owner", Unplaced: "unplaced",
		OverCapacity: "over_capacity", TooManyMoves: "too_many_moves",
		AlreadyFollower: "already_follower", TooManyFollowers: "too_many_followers",
	}
	if int(r) < len(names) && names[r] != "" {
		return names[r]
	}
	return fmt.Sprintf("refusal(%d)", uint8(r))
}

// MoveError says which move of a plan is refused and why. Index is its place
// in the plan, -1 if the move stood alone or the whole plan is meant. It wraps
// ErrMoveRefused.
type MoveError struct {
	Index  int
	Move   Move
	Reason Refusal
	Detail string
}

// Error names the move, the reason code and the bound.
func (e *MoveError) Error() string {
	return fmt.Sprintf("shard: move %d of shard %d from %.64q to %.64q refused: %v: %s",
		e.Index, e.Move.Shard, e.Move.From, e.Move.To, e.Reason, e.Detail)
}

// Unwrap returns ErrMoveRefused.
func (e *MoveError) Unwrap() error { return ErrMoveRefused }

// ValidateMoves judges a plan against a map without changing anything. It
// reports every refused move, joined, each as a *MoveError with a reason code.
// Capacity is judged on the state after the whole plan.
func ValidateMoves(m Map, shards []Shard, servers []Server, moves []Move) error {
	if len(moves) > MaxPlanMoves {
		return &MoveError{Index: -1, Reason: TooManyMoves, Detail: fmt.Sprintf("%d moves, limit %d", len(moves), MaxPlanMoves)}
	}
	known := make(map[ServerID]Server, len(servers))
	for _, s := range servers {
		known[s.ID] = s
	}
	after := make(map[ServerID]int64, len(servers)) // bytes
	for _, a := range m.Assignments {
		if int64(a.Shard) < int64(len(shards)) {
			after[a.Owner] += shards[a.Shard].Bytes()
		}
	}
	moved := make(map[ID]bool, len(moves))
	var errs []error
	for i, mv := range moves {
		if e := judgeMove(m, shards, known, moved, mv); e != nil {
			e.Index = i
			errs = append(errs, e)
			continue
		}
		moved[mv.Shard] = true
		bytes := shards[mv.Shard].Bytes()
		after[mv.From] -= bytes
		after[mv.To] += bytes
	}
	for i, mv := range moves {
		s := known[mv.To]
		if s.CapacityBytes > 0 && after[mv.To] > s.CapacityBytes {
			errs = append(errs, &MoveError{Index: i, Move: mv, Reason: OverCapacity, Detail: fmt.Sprintf(
				"the target would hold %d bytes, capacity %d", after[mv.To], s.CapacityBytes)})
		}
	}
	return errors.Join(errs...)
}

func judgeMove(m Map, shards []Shard, known map[ServerID]Server, moved map[ID]bool, mv Move) *MoveError {
	refuse := func(r Refusal, format string, args ...any) *MoveError {
		return &MoveError{Index: -1, Move: mv, Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	a, ok := m.Owner(mv.Shard)
	if !ok || int64(mv.Shard) >= int64(len(shards)) {
		return refuse(UnknownShard, "the job has %d shards", len(shards))
	}
	if moved[mv.Shard] {
		return refuse(DuplicateMove, "the plan moves it already")
	}
	if e := judgeAssignment(a, mv.To); e != nil {
		e.Move = mv
		return e
	}
	if a.Owner != mv.From {
		return refuse(NotOwner, "the owner is %.64q at epoch %d", a.Owner, a.Epoch)
	}
	target, ok := known[mv.To]
	if !ok {
		return refuse(UnknownServer, "not among the %d servers", len(known))
	}
	if target.Draining {
		return refuse(DrainingTarget, "the target is being emptied")
	}
	return nil
}

// judgeAssignment refuses what no move may do, whatever the servers.
func judgeAssignment(a Assignment, to ServerID) *MoveError {
	refuse := func(r Refusal, detail string) *MoveError {
		return &MoveError{Index: -1, Move: Move{a.Shard, a.Owner, to}, Reason: r, Detail: detail}
	}
	switch {
	case a.Owner == "" || a.Epoch == 0:
		return refuse(Unplaced, "the shard has no owner")
	case to == "":
		return refuse(UnknownServer, "the target is empty")
	case len(to) > MaxServerIDBytes:
		return refuse(UnknownServer, fmt.Sprintf("target name of %d bytes, limit %d", len(to), MaxServerIDBytes))
	case a.Owner == to:
		return refuse(SameServer, "source and target are the same")
	}
	return nil
}
