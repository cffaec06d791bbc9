package ps

import (
	"context"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// Errors that callers branch on; test with errors.Is. They keep their identity
// across nodes.
var (
	// ErrUnknownLayer means that the model has no layer of that name.
	ErrUnknownLayer = errors.New("ps: unknown layer")
	// ErrLength means that a slice or range does not fit the layer.
	ErrLength = errors.New("ps: wrong length")
	// ErrNotInitialized means that a layer declared shard.Assigned was used before
	// a worker set it.
	ErrNotInitialized = errors.New("ps: layer not initialized")
	// ErrNotFinite means that gradients of a table have a NaN or an infinity, see NonFinite.
	ErrNotFinite = errors.New("ps: gradient not finite")
	// ErrTableFull means that a table has as many rows as it may have, see Table.MaxRows.
	ErrTableFull = errors.New("ps: table full")
	// ErrNotPlaced means that too few servers have joined to place the layers.
	ErrNotPlaced = errors.New("ps: layers not placed yet")
	// ErrNotMember means that a worker is not a member of the job, or no longer: it has
	// left, or was taken for dead; start a new one to join again. For a server it means that
	// it was drained and removed, or that another run of it has taken its place.
	ErrNotMember = errors.New("ps: not a member of the job")
	// ErrUnavailable means that the server could not be reached or could not answer
	// in time. The operation may be repeated.
	ErrUnavailable = errors.New("ps: server unavailable")
	// ErrShardLost means that the only server that had the shard has come back without it,
	// and there is no checkpoint to restore it from. While that server is merely gone the
	// error is ErrUnavailable: it may come back with the shard.
	ErrShardLost = errors.New("ps: shard lost")
	// ErrClosed means that the client, server or coordinator was closed.
	ErrClosed = errors.New("ps: closed")
	// ErrConflict means that the request contradicts what is there: another job, model,
	// server, move or checkpoint under way.
	ErrConflict = errors.New("ps: conflict")
	// ErrDeposed means that a coordinator may not act any more: it has lost its lease,
	// or a later one has taken its place.
	ErrDeposed = errors.New("ps: coordinator deposed")
	// ErrRefused means that a server refused a frame that it understood.
	ErrRefused = errors.New("ps: refused")
	// ErrUnknownDataset means that the job has no dataset of that name.
	ErrUnknownDataset = errors.New("ps: unknown dataset")
	// ErrEndOfData means that all ranges of all epochs of a dataset are finished.
	ErrEndOfData = errors.New("ps: end of data")
	// ErrNoRange means that other workers have all ranges that can be handed out now. More
	// may follow: ranges of a worker that dies, or those of the next epoch.
	ErrNoRange = errors.New("ps: no range to hand out")
)

// errWaiting is what a tick, a pull of a table with Staleness or a take of ranges ends with
// that still has to wait when its attempt is over: the worker asks again, and knows for
// whom it waits.
var errWaiting = errors.New("ps: waiting for other members")

// OpError is the error of an operation on a shard. Unwrap gives the first cause.
type OpError struct {
	Op     string         // push, pull, assign, push of rows, pull of rows or deletion of rows
	Layer  string         // name of the layer, if known
	Shard  shard.ID       // shard that failed first
	Server shard.ServerID // server that was asked last; empty if none was reached
	Epoch  shard.Epoch    // epoch of the shard as this side knew it
	Err    error
}

// Error names what failed, where, and why.
func (e *OpError) Error() string {
	where := ""
	if e.Server != "" {
		where = fmt.Sprintf(" at epoch %d on server %q", e.Epoch, e.Server)
	}
	return fmt.Sprintf("ps: %s of layer %q: shard %d%s: %v", e.Op, e.Layer, e.Shard, where, e.Err)
}

// Unwrap returns the first cause.
func (e *OpError) Unwrap() error { return e.Err }

// Retryable reports whether the same operation may succeed if it is repeated later. A push
// that failed with a retryable error may have been applied, in whole or in part, and may
// still be applied, until a later push of the same client to the same shard is acknowledged.
func Retryable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotPlaced) ||
		errors.Is(err, context.DeadlineExceeded) || actor.Retryable(err)
}

// sentinels keep their identity between nodes under these codes.
var sentinels = []struct {
	code string
	err  error
}{
	{"ps.unknown_layer", ErrUnknownLayer},
	{"ps.length", ErrLength},
	{"ps.not_initialized", ErrNotInitialized},
	{"ps.not_finite", ErrNotFinite},
	{"ps.table_full", ErrTableFull},
	{"ps.not_placed", ErrNotPlaced},
	{"ps.not_member", ErrNotMember},
	{"ps.unavailable", ErrUnavailable},
	{"ps.shard_lost", ErrShardLost},
	{"ps.closed", ErrClosed},
	{"ps.conflict", ErrConflict},
	{"ps.refused", ErrRefused},
	{"ps.deposed", ErrDeposed},
	{"ps.unknown_dataset", ErrUnknownDataset},
	{"ps.end_of_data", ErrEndOfData},
	{"ps.no_range", ErrNoRange},
	{"ps.waiting", errWaiting},
	{"ps.store_away", errStoreAway},
	{"ps.returning", errReturning},
	{"ps.replacing", errReplacing},
	{"ps.leaving", errLeaving},
	{"ps.pages", errPages},
	{"checkpoint.not_found", checkpoint.ErrNotFound},
	{"checkpoint.damaged", checkpoint.ErrDamaged},
	{"checkpoint.newer", checkpoint.ErrNewer},
	{"checkpoint.mismatch", checkpoint.ErrMismatch},
	{"shard.refused", shard.ErrRefused},
	{"shard.move_refused", shard.ErrMoveRefused},
}

// code is the outcome of a data plane request as it travels in a reply.
type code uint8

const (
	codeOK             code = iota // done; a repeated push that was applied before is OK too
	codeMoved                      // not the owner: payload = owner, header = its epoch
	codeRetry                      // not now (frozen, not active yet): ask again
	codeNotInitialized             // Assigned layer without values
	codeLength                     // range or payload does not fit the shard
	codeStaleClock                 // BSP: the clock of the push is over
	codeStale                      // sequence number below the worker's own floor
	codeTooFar                     // more than shard.WindowSize pushes outstanding
	codeFenced                     // the incarnation is no longer a member
	codeUnknownShard               // this server does not have the shard
	codeRefused                    // anything else; payload = text
	codeNotFinite                  // gradients of rows that are not finite
	codeTableFull                  // rows over Table.MaxRows
	codeEnd
)

// codeErrors has the error that a client returns for a final code.
var codeErrors = [codeEnd]error{
	codeNotInitialized: ErrNotInitialized,
	codeLength:         ErrLength,
	codeStaleClock:     fmt.Errorf("%w: its clock is over", ErrNotMember),
	codeStale:          fmt.Errorf("%w: sequence number given up", ErrRefused),
	codeTooFar:         fmt.Errorf("%w: over %d pushes outstanding", ErrRefused, shard.WindowSize),
	codeFenced:         ErrNotMember,
	codeRefused:        ErrRefused,
	codeNotFinite:      ErrNotFinite,
	codeTableFull:      ErrTableFull,
}
