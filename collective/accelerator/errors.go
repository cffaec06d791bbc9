package accelerator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

// Errors that callers branch on; test with errors.Is. Errors of groups wrap those of package
// collective as well: ErrArgument, ErrRankLost, ErrAborted, ErrClosed.
var (
	// ErrNotBuilt means that the program was built without the tag of the vendor, or
	// without cgo.
	ErrNotBuilt = abi.ErrNotBuilt
	// ErrLibraryNotFound means that a library cannot be loaded; *NotFoundError says what was
	// tried.
	ErrLibraryNotFound = abi.ErrNotFound
	// ErrSymbolMissing means that a library lacks a function that cannot be done without;
	// *SymbolError names it.
	ErrSymbolMissing = abi.ErrSymbol
	// ErrForeign means that a library has the right name and is another vendor's.
	ErrForeign = abi.ErrForeign
	// ErrNoDevice means that a vendor's libraries are there but no device.
	ErrNoDevice = errors.New("accelerator: no device")
	// ErrUnsupported means that a library cannot do what was asked for; *UnsupportedError
	// says what.
	ErrUnsupported = errors.New("accelerator: unsupported")
	// ErrHung means that a library did not come back in time. What it was given may still
	// be in use; the device is best left alone until the process ends.
	ErrHung = errors.New("accelerator: vendor's library hangs")
)

// NotFoundError says where a library was looked for. It wraps ErrLibraryNotFound.
type NotFoundError = abi.NotFoundError

// SymbolError says which function a library lacks. It wraps ErrSymbolMissing.
type SymbolError = abi.SymbolError

// UnsupportedError says what a library cannot do. It wraps ErrUnsupported.
type UnsupportedError struct {
	Operation Operation
	Type      Type
	Op        collective.Op
	Vendor    Vendor
	Version   Version
}

// Error names the call and the library.
func (e *UnsupportedError) Error() string {
	of := ""
	if e.Operation.reduces() {
		of = fmt.Sprintf(" (%v)", e.Op)
	}
	return fmt.Sprintf("%v: %v%s of %v by the library of %v, version %v", ErrUnsupported, e.Operation, of, e.Type, e.Vendor, e.Version)
}

// Unwrap returns ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// CallError says what a vendor's library refused or reported. Runtime says that the code
// is one of the runtime of the devices, not of the communicators.
type CallError struct {
	Vendor  Vendor
	Call    string
	Runtime bool
	Code    int
	Text    string // what the library says about it
}

// Error names the call, the code and its meaning.
func (e *CallError) Error() string {
	return fmt.Sprintf("accelerator: %v: %s: code %d (%s)", e.Vendor, e.Call, e.Code, e.Text)
}

// Codes of communicators that this package tells apart.
const (
	success         = 0
	invalidArgument = 4
	remoteError     = 6
	inProgress      = 7
	timedOut        = 8

	ascendParameter    = 1
	ascendNotSupported = 5
	ascendTimeout      = 9
	ascendRemote       = 21
)

// Unwrap returns what the code means to a caller, nil where that is nothing particular.
func (e *CallError) Unwrap() error {
	if e.Runtime {
		return nil
	}
	if e.Vendor == Ascend {
		return map[int]error{
			ascendParameter: collective.ErrArgument, ascendNotSupported: ErrUnsupported,
			ascendTimeout: context.DeadlineExceeded, ascendRemote: collective.ErrRankLost,
		}[e.Code]
	}
	return map[int]error{
		invalidArgument: collective.ErrArgument, remoteError: collective.ErrRankLost, timedOut: context.DeadlineExceeded,
	}[e.Code]
}

// OpError is the error of a call of a group. Unwrap gives the cause.
type OpError struct {
	Operation  Operation
	Type       Type
	Op         collective.Op
	Root       int // or the other rank of a message
	Count      int // elements
	Rank, Size int
	Device     int
	Seq        uint64 // of the call, counted from 1 in each group
	Elapsed    time.Duration
	Err        error
}

// Error names the call, the rank and the cause.
func (e *OpError) Error() string {
	return fmt.Sprintf("accelerator: %v of %d %v, call %d on rank %d of %d, device %d, after %v: %v",
		e.Operation, e.Count, e.Type, e.Seq, e.Rank, e.Size, e.Device, e.Elapsed.Round(time.Microsecond), e.Err)
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// argument is an error about what a caller has given.
func argument(format string, args ...any) error {
	return fmt.Errorf("%w: %s", collective.ErrArgument, fmt.Sprintf(format, args...))
}
