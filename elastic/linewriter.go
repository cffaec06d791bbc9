package elastic

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// maxLine is the longest line of a server's output; what is longer is cut.
const maxLine = 16 << 10

// lineWriter passes whole lines on behind a prefix, and watches for the line that
// says ready. Its Write never fails: a full disk must not end the server.
type lineWriter struct {
	turn   *sync.Mutex // held while writing to out, which others share
	out    io.Writer
	prefix string
	want   string
	ready  chan struct{} // closed at the line that begins with want

	mu      sync.Mutex
	partial []byte
	line    string
	isReady bool
}

func newLineWriter(turn *sync.Mutex, out io.Writer, prefix, want string) *lineWriter {
	return &lineWriter{turn: turn, out: out, prefix: prefix, want: want, ready: make(chan struct{})}
}

// Write takes a piece of output.
func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			end = len(b)
		}
		room := maxLine - len(w.partial)
		w.partial = append(w.partial, b[:min(end, room)]...)
		switch {
		case end > room: // the rest begins a line of its own
			b = b[room:]
			w.emit()
		case end < len(b):
			b = b[end+1:]
			w.emit()
		default:
			b = nil
		}
	}
	return n, nil
}

// emit passes the collected line on.
func (w *lineWriter) emit() {
	w.line = string(w.partial)
	w.partial = w.partial[:0]
	w.turn.Lock()
	_, _ = io.WriteString(w.out, w.prefix+w.line+"\n")
	w.turn.Unlock()
	if !w.isReady && w.want != "" && strings.HasPrefix(w.line, w.want) {
		w.isReady = true
		close(w.ready)
	}
}

// flush passes on a last line without an end.
func (w *lineWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.partial) > 0 {
		w.emit()
	}
}

// last returns the last line.
func (w *lineWriter) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line
}
