package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Errors that callers branch on; test with errors.Is.
var (
	// ErrArgument means that a call cannot be carried out as it was made. The group is as
	// it was before.
	ErrArgument = errors.New("collective: bad argument")
	// ErrMismatch means that ranks made different calls at the same place in their order.
	// The group cannot be used any more.
	ErrMismatch = errors.New("collective: ranks made different calls")
	// ErrRankLost means that a rank died, hung, or left while it was needed. The group
	// cannot be used any more; Shrink makes one of those that are left.
	ErrRankLost = errors.New("collective: rank lost")
	// ErrAborted means that a rank aborted the group.
	ErrAborted = errors.New("collective: group aborted")
	// ErrClosed means that this side closed the group.
	ErrClosed = errors.New("collective: group closed")
	// ErrMissing means that a rank did not come before the deadline.
	ErrMissing = errors.New("collective: rank is missing")
	// ErrConflict means that a group or member of that name exists, or that this one was
	// declared dead.
	ErrConflict = errors.New("collective: conflict")
	// ErrMemory means that a rank could not make or map memory for an Alloc. The group is as
	// it was before.
	ErrMemory = errors.New("collective: no memory")
	// ErrRefused means that the other end of a connection is no member of the group, or
	// does not speak the protocol.
	ErrRefused = errors.New("collective: refused")
)

var errElsewhere = errors.New("it failed on another rank")

// OpError is the error of a call. Unwrap gives the first cause.
type OpError struct {
	Call    Fingerprint // what was called
	Rank    int         // this rank
	Epoch   uint64      // of the group
	Seq     uint64      // of the call, counted from 1 in each group
	Waiting int         // the rank that was waited for, or -1
	Bytes   int64       // that had been received
	Elapsed time.Duration
	Err     error
}

// Error names the call, the ranks and the cause.
func (e *OpError) Error() string {
	waiting := ""
	if e.Waiting >= 0 {
		waiting = fmt.Sprintf(" waiting for rank %d", e.Waiting)
	}
	return fmt.Sprintf("collective: %v, call %d at epoch %d on rank %d%s, %d bytes received in %v: %v",
		e.Call, e.Seq, e.Epoch, e.Rank, waiting, e.Bytes, e.Elapsed.Round(time.Microsecond), e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// MismatchError says which two ranks made different calls. It wraps ErrMismatch.
type MismatchError struct {
	Seq          uint64
	Rank, Peer   int
	Mine, Theirs Fingerprint // what Rank and Peer called
}

// Error names both ranks and calls.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: call %d is %v on rank %d and %v on rank %d", ErrMismatch, e.Seq, e.Mine, e.Rank, e.Theirs, e.Peer)
}

// Unwrap returns ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// RankError says which ranks are lost, by their place in the group and their names, and
// how this was noticed. It wraps ErrRankLost.
type RankError struct {
	Ranks  []int
	Names  []string
	Reason string
}

// Error names the ranks.
func (e *RankError) Error() string {
	return fmt.Sprintf("%v: %v (%s): %s", ErrRankLost, e.Ranks, strings.Join(e.Names, ", "), e.Reason)
}

// Unwrap returns ErrRankLost.
func (e *RankError) Unwrap() error { return ErrRankLost }

// MissingError says who did not come. It wraps ErrMissing and the end of the context.
type MissingError struct {
	Names []string // of the members, or "N more" where their names are not known
	// Addresses are where they were looked for; none where they should have come by themselves.
	Addresses []string
	Waited    time.Duration // since this rank began to wait
	Err       error
}

// Error names the missing members, where they were looked for, and for how long.
func (e *MissingError) Error() string {
	at := ""
	if len(e.Addresses) > 0 {
		at = " at " + strings.Join(e.Addresses, ", ")
	}
	return fmt.Sprintf("%v: %s%s, after %v: %v", ErrMissing, strings.Join(e.Names, ", "), at, e.Waited.Round(time.Millisecond), e.Err)
}

// Unwrap returns ErrMissing and the cause.
func (e *MissingError) Unwrap() []error { return []error{ErrMissing, e.Err} }

// Lost returns the ranks that an error says are lost, for Shrink; nil if it does not.
func Lost(err error) []int {
	var r *RankError
	if errors.As(err, &r) {
		return slices.Clone(r.Ranks)
	}
	return nil
}

// argument is an error about a call.
func argument(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, args...))
}
