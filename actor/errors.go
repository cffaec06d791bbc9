package actor

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Sentinels that callers branch on, with errors.Is. They hold across nodes, except
// ErrHandshake, ErrAddressInUse and ErrStop, which mean something on this side only.
var (
	// ErrNoProcess means that no process of that name runs on that node, or that
	// it ended before it answered.
	ErrNoProcess = errors.New("actor: no such process")
	// ErrNodeDown means that the node cannot be reached, or that its connection
	// broke while an answer was due; the message may or may not have been handled.
	ErrNodeDown = errors.New("actor: node down")
	// ErrMailboxFull means that the receiver's mailbox is at its bound.
	ErrMailboxFull = errors.New("actor: mailbox full")
	// ErrTooLarge means that an encoded message is over MaxMessageBytes.
	ErrTooLarge = errors.New("actor: message too large")
	// ErrUnknownType means that a message's type is not registered, at the sender
	// or at the receiver, or that a reply has another type than the caller asked for.
	ErrUnknownType = errors.New("actor: unknown message type")
	// ErrBadMessage means that bytes from another node could not be decoded.
	ErrBadMessage = errors.New("actor: malformed message")
	// ErrTimeout means that no answer came before the deadline. It comes together
	// with context.DeadlineExceeded.
	ErrTimeout = errors.New("actor: deadline exceeded")
	// ErrHandshake means that two nodes did not accept each other: another version,
	// another secret, a certificate that does not verify, or a name in use.
	ErrHandshake = errors.New("actor: handshake failed")
	// ErrClosed means that this node is closed.
	ErrClosed = errors.New("actor: node closed")
	// ErrNameTaken means that a running process has that name already.
	ErrNameTaken = errors.New("actor: name taken")
	// ErrAddressInUse means that something else listens on the configured address.
	ErrAddressInUse = errors.New("actor: address in use")
	// ErrRestartLimit is the reason of a supervisor whose children failed too often.
	ErrRestartLimit = errors.New("actor: restart limit exceeded")
	// ErrKilled is the reason of an actor that was ended from outside before its
	// mailbox was empty.
	ErrKilled = errors.New("actor: killed")
	// ErrPanic is the reason of an actor whose code panicked.
	ErrPanic = errors.New("actor: panic")
	// ErrUnsupported is the answer to an operation of ergo's own protocol that does
	// not cross nodes here: its process-to-process sends, links by pid, remote
	// spawn and proxies.
	ErrUnsupported = errors.New("actor: not supported between nodes")
	// ErrStop, returned from Receive, ends the actor normally.
	ErrStop = errors.New("actor: stop")
)

// Error is what operations return: what was done, to whom, and why it failed.
type Error struct {
	Op  string // "call", "cast", "connect", ...
	To  string // the process, node or address that it was about
	Err error  // the cause; never nil
}

// Error returns one line that names the operation, its object and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("actor: %s %s: %s", e.Op, e.To, strings.TrimPrefix(e.Err.Error(), "actor: "))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func opError(op string, to fmt.Stringer, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, To: to.String(), Err: err}
}

// Retryable reports whether the same operation may succeed when it is tried again
// later: the node was down, the mailbox was full, the process was not there (yet),
// or the deadline passed. A call that failed this way may have been handled all the
// same, unless it was made WithRetry.
func Retryable(err error) bool {
	for _, s := range []error{ErrNodeDown, ErrMailboxFull, ErrNoProcess, ErrTimeout} {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// deadlineError turns the end of a context into this package's error.
func deadlineError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	return err
}

// coded pairs a sentinel with the code under which it travels.
type coded struct {
	code string
	err  error
}

func builtinErrors() []coded {
	return []coded{
		{"no-process", ErrNoProcess},
		{"node-down", ErrNodeDown},
		{"mailbox-full", ErrMailboxFull},
		{"too-large", ErrTooLarge},
		{"unknown-type", ErrUnknownType},
		{"bad-message", ErrBadMessage},
		{"timeout", ErrTimeout},
		{"closed", ErrClosed},
		{"name-taken", ErrNameTaken},
		{"restart-limit", ErrRestartLimit},
		{"killed", ErrKilled},
		{"panic", ErrPanic},
		{"unsupported", ErrUnsupported},
		{"deadline", context.DeadlineExceeded},
		{"canceled", context.Canceled},
	}
}

// remoteError is an error that came from another node or through an exit reason.
type remoteError struct {
	text string
	is   []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.is }

// maxErrorText bounds the text of an error on the wire.
const maxErrorText = 1024

// errorCodes returns the codes of the sentinels that err wraps, and its text.
func (n *Node) errorCodes(err error) (codes []string, text string) {
	for _, c := range n.types.Load().errors {
		if errors.Is(err, c.err) {
			codes = append(codes, c.code)
		}
	}
	text = err.Error()
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return codes, text
}

// errorFrom is the reverse of errorCodes. Codes that are not known here are
// dropped; the text stays.
func (n *Node) errorFrom(codes []string, text string) error {
	e := &remoteError{text: text}
	for _, code := range codes {
		for _, c := range n.types.Load().errors {
			if c.code == code {
				e.is = append(e.is, c.err)
			}
		}
	}
	return e
}

// Exit reasons travel through ergo as strings. reasonNormal is ergo's own word.
const (
	reasonNormal       = "normal"
	reasonNoProcess    = "noproc"
	reasonNoConnection = "noconnection"
	reasonSeparator    = "\x1f"
)

func (n *Node) reasonString(err error) string {
	if err == nil {
		return reasonNormal
	}
	codes, text := n.errorCodes(err)
	return strings.Join(append(codes, text), reasonSeparator)
}

func (n *Node) reasonError(reason string) error {
	switch reason {
	case reasonNormal:
		return nil
	case reasonNoProcess:
		return ErrNoProcess
	case reasonNoConnection:
		return ErrNodeDown
	}
	parts := strings.Split(reason, reasonSeparator)
	last := len(parts) - 1
	return n.errorFrom(parts[:last], parts[last])
}
