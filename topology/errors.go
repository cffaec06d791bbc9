package topology

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid is wrapped by errors about an argument.
	ErrInvalid = errors.New("topology: invalid")
	// ErrNoRoom is wrapped by errors that say that too little is free.
	ErrNoRoom = errors.New("topology: no room")
)

// ParseError says where a text is not of its format.
type ParseError struct {
	// Format names the format, for example "matrix".
	Format string
	// Line counts from 1; 0 is the text as a whole.
	Line int
	// Field names the column, element or attribute.
	Field string
	// Reason says what is wrong with it.
	Reason string
}

// Error returns the place and the reason.
func (e *ParseError) Error() string {
	return fmt.Sprintf("topology: %s line %d, field %.64q: %s", e.Format, e.Line, e.Field, e.Reason)
}
