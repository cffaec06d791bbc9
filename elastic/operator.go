package elastic

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// ErrTransition is wrapped by the error of a change of status that the table of
// legal transitions does not have.
var ErrTransition = errors.New("elastic: illegal transition")

// Kind says what an Operator does.
type Kind uint8

// Kinds of operators. The zero value is none of them.
const (
	// AddServer starts a server and waits until it is registered.
	AddServer Kind = iota + 1
	// DrainServer marks a server so that no shard is placed on it; its shards
	// leave by MoveShard operators.
	DrainServer
	// KeepServer takes the mark of DrainServer off again.
	KeepServer
	// MoveShard migrates one shard while it is in use.
	MoveShard
	// RemoveServer takes an empty server out of the job and stops it.
	RemoveServer
)

// String returns the name used in logs and errors.
func (k Kind) String() string {
	names := [...]string{
		AddServer: "add_server", DrainServer: "drain_server", KeepServer: "keep_server",
		MoveShard: "move_shard", RemoveServer: "remove_server",
	}
	if int(k) < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Steps returns the names of the steps of an operator of this kind in their
// order; an operator that fails names the step. The slice is the caller's.
func (k Kind) Steps() []string {
	switch k {
	case AddServer:
		return []string{"start", "register"}
	case DrainServer:
		return []string{"drain"}
	case KeepServer:
		return []string{"keep"}
	case MoveShard:
		return []string{"migrate"}
	case RemoveServer:
		return []string{"remove", "stop"}
	}
	return nil
}

// Status is where an Operator is in its life. The zero value is Created.
type Status uint8

// States of an operator. Succeeded, Failed, Cancelled and TimedOut are final.
const (
	Created Status = iota
	Started
	Succeeded
	Failed
	Cancelled
	TimedOut
)

// transitions lists for each status those that may follow it.
var transitions = [...][]Status{
	Created:   {Started, Cancelled},
	Started:   {Succeeded, Failed, Cancelled, TimedOut},
	Succeeded: nil,
	Failed:    nil,
	Cancelled: nil,
	TimedOut:  nil,
}

// String returns the name used in logs and errors.
func (s Status) String() string {
	names := [...]string{"created", "started", "succeeded", "failed", "cancelled", "timed_out"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Final reports whether no other status follows.
func (s Status) Final() bool { return int(s) >= len(transitions) || len(transitions[s]) == 0 }

// Influence is what an operator is expected to change.
type Influence struct {
	// Bytes is how much parameter data crosses the network.
	Bytes int64
	// Servers is the change of the number of servers that take shards.
	Servers int
}

// Operator is one piece of work that changes the job, as a value. The policy
// makes it, the controller carries it out.
type Operator struct {
	// ID is unique within one State and grows.
	ID uint64
	// Kind says what it does.
	Kind Kind
	// Server is the server that is added, drained, kept or removed; empty for a move.
	Server shard.ServerID
	// Move is the migration of a MoveShard; zero for the others.
	Move shard.Move
	// Status is where it is in its life.
	Status Status
	// Reason says why the policy made it.
	Reason string
	// Influence is what it is expected to change.
	Influence Influence
	// Created is Snapshot.At of the plan that made it.
	Created time.Duration
	// Timeout is the longest that it may run.
	Timeout time.Duration
	// Failure is the text of the error of one that failed or timed out.
	Failure string
}

// Advance returns the operator in its next status. An illegal transition gives an
// error that wraps ErrTransition, and the operator as it was.
func (o Operator) Advance(to Status) (Operator, error) {
	if int(o.Status) >= len(transitions) || !slices.Contains(transitions[o.Status], to) {
		return o, fmt.Errorf("%w: %v from %v to %v", ErrTransition, o, o.Status, to)
	}
	o.Status = to
	return o, nil
}

// String names the operator and what it works on.
func (o Operator) String() string {
	if o.Kind == MoveShard {
		return fmt.Sprintf("operator %d %v %d %s→%s", o.ID, o.Kind, o.Move.Shard, o.Move.From, o.Move.To)
	}
	return fmt.Sprintf("operator %d %v %s", o.ID, o.Kind, o.Server)
}

// subject is what two operators must not work on at the same time, and what a
// failure makes the policy wait for.
type subject struct {
	kind   Kind
	server shard.ServerID
	shard  shard.ID
}

// subject of the operator. Failed starts of servers count against starting any
// server: each gets a new name.
func (o Operator) subject() subject {
	switch o.Kind {
	case MoveShard:
		return subject{kind: MoveShard, shard: o.Move.Shard}
	case AddServer:
		return subject{kind: AddServer}
	}
	return subject{kind: o.Kind, server: o.Server}
}
