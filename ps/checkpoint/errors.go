package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Errors that callers branch on.
var (
	// ErrNotFound means that there is no such object, or no such checkpoint: a checkpoint
	// exists when its manifest does.
	ErrNotFound = errors.New("not found")
	// ErrDamaged means that a checkpoint is not what was committed: a file is missing, cut,
	// altered or of another checkpoint, or an increment's parent is.
	ErrDamaged = errors.New("damaged")
	// ErrNewer means that a newer version of this module wrote the checkpoint.
	ErrNewer = errors.New("newer format")
	// ErrMismatch means that the checkpoint is whole but of something else: another model,
	// shape, element type or optimizer.
	ErrMismatch = errors.New("does not match")
)

// Error says which part of a checkpoint an error is about. Fields that do not apply are
// empty.
type Error struct {
	Checkpoint string // name of the checkpoint
	File       string // name of the file within it
	Part       string // the shard or tensor, in words
	Err        error
}

// Error names the parts from the outermost to the innermost.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("checkpoint: ")
	b.WriteString(e.Checkpoint)
	if e.File != "" {
		b.WriteString("/" + e.File)
	}
	if e.Part != "" {
		b.WriteString(": " + e.Part)
	}
	b.WriteString(": " + e.Err.Error())
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// fault is an Error that wraps the sentinel and says what is wrong.
func fault(checkpoint, file, part string, sentinel error, format string, args ...any) error {
	return &Error{checkpoint, file, part, fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...))}
}

// lost turns what a storage says of an object that a manifest or the object's own length
// promises into an Error. That the object is not there or ends too early is damage; a
// storage that cannot be reached is not.
func lost(checkpoint, file string, err error) error {
	if errors.Is(err, ErrNotFound) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault(checkpoint, file, "", ErrDamaged, "%v", err)
	}
	return &Error{checkpoint, file, "", err}
}
