package device

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotBuilt is the error of a provider that was left out of this program: it needs a
// build tag and cgo.
var ErrNotBuilt = errors.New("device: provider is not built into this program")

// maxQuoted bounds what an error quotes of a text that was not understood, in bytes.
const maxQuoted = 64

// TextError says where the text of a tool, a page or a file is not what a provider
// expects. It is the error for an unknown version of the format as well.
type TextError struct {
	Source string // what the text came from: "npu-smi info"
	Line   int    // counted from 1; 0: the text as a whole
	Field  string // name of the field or column
	Text   string // what stands there
	Want   string // what should stand there
}

// Error names source, line, field, the text (cut at 64 bytes) and what was expected.
func (e *TextError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "device: %s", e.Source)
	if e.Line > 0 {
		fmt.Fprintf(&b, ": line %d", e.Line)
	}
	text := e.Text
	if len(text) > maxQuoted {
		text = text[:maxQuoted] + "..."
	}
	fmt.Fprintf(&b, ": %s: %q: want %s", e.Field, text, e.Want)
	return b.String()
}

// ProviderError says which provider did not answer an Inventory. Unwrap gives the cause,
// context.DeadlineExceeded for one that hangs.
type ProviderError struct {
	Source string
	Err    error
}

// Error names the source and the cause.
func (e *ProviderError) Error() string {
	return fmt.Sprintf("device: %s does not answer: %v", e.Source, e.Err)
}

// Unwrap returns the cause.
func (e *ProviderError) Unwrap() error { return e.Err }
