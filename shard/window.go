package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// WindowSize is the number of sequence numbers that one worker incarnation may
// have outstanding at one shard.
const WindowSize = 1024

// MaxIncarnations bounds the windows that one shard keeps (invariant I7).
const MaxIncarnations = 1 << 16

// ErrWindowFormat is wrapped by every error of DecodeWindows.
var ErrWindowFormat = errors.New("shard: push window: bad format")

// Verdict is the answer of a push window.
type Verdict uint8

// Answers of a push window. The zero value is none of them, so that a verdict
// that was never asked for is not taken for leave to apply.
const (
	// Fresh means that the push was not seen before: apply it. It is marked.
	Fresh Verdict = iota + 1
	// Duplicate means that the push was applied: acknowledge it again.
	Duplicate
	// Stale means that the sender has given the number up: never apply it.
	Stale
	// TooFar means that the number lies WindowSize or more beyond the lowest
	// outstanding one: refuse it.
	TooFar
	// Fenced means that the incarnation was declared dead: refuse it.
	Fenced
	// Full means that MaxIncarnations windows exist already: refuse it.
	Full
)

// String is the name of the verdict as used in errors and logs.
func (v Verdict) String() string {
	switch v {
	case Fresh:
		return "fresh"
	case Duplicate:
		return "duplicate"
	case Stale:
		return "stale"
	case TooFar:
		return "too far"
	case Fenced:
		return "fenced"
	case Full:
		return "full"
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Window remembers which pushes of one worker incarnation a shard has applied
// (invariant I1, exactly once). It holds the last WindowSize sequence numbers
// in 136 bytes, however long the history. Sequence numbers start at 1. The
// zero value is ready. It is not safe for concurrent use.
type Window struct {
	floor uint64
	seen  [WindowSize / 64]uint64
}

// Floor is the lowest sequence number that the sender still cares about.
func (w *Window) Floor() uint64 { return max(w.floor, 1) }

// Admit judges a push with sequence number seq from a sender whose lowest
// outstanding number is floor, and marks it if it is Fresh. A floor below one
// seen before (a late frame) is ignored: the floor only moves forward. Any other
// verdict leaves the window as it is, so that windows which have admitted the same
// pushes are equal, whatever else came to one of them. It does not allocate.
func (w *Window) Admit(seq, floor uint64) Verdict {
	v := w.judge(seq, floor)
	if v == Fresh {
		w.raise(floor)
		w.seen[seq/64%(WindowSize/64)] |= 1 << (seq % 64)
	}
	return v
}

// judge is Admit without the mark.
func (w *Window) judge(seq, floor uint64) Verdict {
	low := max(w.Floor(), floor)
	switch {
	case seq < low:
		return Stale
	case seq-low >= WindowSize:
		return TooFar
	case seq-w.Floor() >= WindowSize: // its bit stands for a number below the new floor
		return Fresh
	case w.seen[seq/64%(WindowSize/64)]&(1<<(seq%64)) != 0:
		return Duplicate
	}
	return Fresh
}

// raise moves the floor forward and forgets the numbers below it, whose bits
// stand for numbers WindowSize higher from then on.
func (w *Window) raise(floor uint64) {
	w.floor = max(w.floor, 1)
	if floor <= w.floor {
		return
	}
	if floor-w.floor >= WindowSize {
		w.seen = [WindowSize / 64]uint64{}
		w.floor = floor
		return
	}
	for w.floor < floor {
		if w.floor%64 == 0 && floor-w.floor >= 64 {
			w.seen[w.floor/64%(WindowSize/64)] = 0
			w.floor += 64
			continue
		}
		w.seen[w.floor/64%(WindowSize/64)] &^= 1 << (w.floor % 64)
		w.floor++
	}
}

// Windows is the set of push windows of one shard, keyed by worker
// incarnation: a number unique and growing across the job. It moves and is
// saved with the shard. Its memory is bounded by MaxIncarnations windows. The
// zero value is ready. It is not safe for concurrent use.
type Windows struct {
	horizon uint64
	windows map[uint64]*Window
}

// Has reports whether Admit would call a push a Duplicate, and marks nothing.
func (ws *Windows) Has(incarnation, seq, floor uint64) bool {
	w := ws.windows[incarnation]
	return w != nil && w.judge(seq, floor) == Duplicate
}

// Admit judges a push of an incarnation as Window.Admit does. The first fresh push
// of an incarnation allocates its window; later ones do not allocate.
func (ws *Windows) Admit(incarnation, seq, floor uint64) Verdict {
	w := ws.windows[incarnation]
	if w == nil {
		if incarnation <= ws.horizon {
			return Fenced
		}
		if len(ws.windows) >= MaxIncarnations {
			return Full
		}
		var none Window
		if v := none.judge(seq, floor); v != Fresh {
			return v
		}
		w = ws.open(incarnation)
	}
	return w.Admit(seq, floor)
}

func (ws *Windows) open(incarnation uint64) *Window {
	if ws.windows == nil {
		ws.windows = make(map[uint64]*Window)
	}
	w := new(Window)
	ws.windows[incarnation] = w
	return w
}

// Retain drops the windows of all incarnations up to horizon that are not in
// live, and refuses those incarnations from then on (Fenced). A live one that
// has no window yet gets an empty one, because it may push later. An
// incarnation once fenced stays fenced, and the horizon never goes back. At
// most MaxIncarnations windows are kept; live ones beyond that are fenced.
// Retain keeps no reference to live, and reports whether anything has changed.
func (ws *Windows) Retain(horizon uint64, live []uint64) (changed bool) {
	former := ws.horizon
	ws.horizon = max(former, horizon)
	changed = ws.horizon > former
	keep := make(map[uint64]bool, len(live))
	for _, incarnation := range live {
		keep[incarnation] = true
	}
	for incarnation := range ws.windows {
		if incarnation <= horizon && !keep[incarnation] {
			delete(ws.windows, incarnation)
			changed = true
		}
	}
	for _, incarnation := range live {
		isNew := incarnation > former && incarnation <= horizon && ws.windows[incarnation] == nil
		if isNew && len(ws.windows) < MaxIncarnations {
			ws.open(incarnation)
			changed = true
		}
	}
	return changed
}

// Len is the number of windows kept.
func (ws *Windows) Len() int { return len(ws.windows) }

// Horizon is the highest horizon given to Retain.
func (ws *Windows) Horizon() uint64 { return ws.horizon }

// Last is the highest incarnation that the set knows: one that has a window or is fenced.
func (ws *Windows) Last() uint64 {
	last := ws.horizon
	for incarnation := range ws.windows {
		last = max(last, incarnation)
	}
	return last
}

const (
	windowsHeaderBytes = 8 + 4
	windowBytes        = 8 + 8 + WindowSize/8
)

// MaxWindowsBytes is the longest encoding of a set of windows, in bytes.
const MaxWindowsBytes = windowsHeaderBytes + MaxIncarnations*windowBytes

// EncodedLen is the number of bytes that Append adds.
func (ws *Windows) EncodedLen() int { return windowsHeaderBytes + len(ws.windows)*windowBytes }

// Append appends the encoding of the set to dst and returns the longer slice:
// horizon (8 bytes), count (4), then for each incarnation in ascending order
// the incarnation (8), the floor (8) and the bitmap (128); all little-endian.
// Equal sets give equal bytes.
func (ws *Windows) Append(dst []byte) []byte {
	dst = slices.Grow(dst, ws.EncodedLen())
	dst = binary.LittleEndian.AppendUint64(dst, ws.horizon)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(ws.windows)))
	for _, incarnation := range slices.Sorted(maps.Keys(ws.windows)) {
		w := ws.windows[incarnation]
		dst = binary.LittleEndian.AppendUint64(dst, incarnation)
		dst = binary.LittleEndian.AppendUint64(dst, w.floor)
		for _, word := range w.seen {
			dst = binary.LittleEndian.AppendUint64(dst, word)
		}
	}
	return dst
}

// DecodeWindows reads what Append wrote. src must hold exactly one set; it is
// not kept. Anything else (length, count over MaxIncarnations, incarnations
// not ascending) gives an error that wraps ErrWindowFormat, before memory in
// proportion to a claimed count is allocated.
func DecodeWindows(src []byte) (Windows, error) {
	var ws Windows
	if len(src) < windowsHeaderBytes {
		return ws, fmt.Errorf("%w: %d bytes, at least %d needed", ErrWindowFormat, len(src), windowsHeaderBytes)
	}
	horizon, count := binary.LittleEndian.Uint64(src), int64(binary.LittleEndian.Uint32(src[8:]))
	if count > MaxIncarnations {
		return ws, fmt.Errorf("%w: %d incarnations, limit %d", ErrWindowFormat, count, MaxIncarnations)
	}
	if want := windowsHeaderBytes + count*windowBytes; int64(len(src)) != want {
		return ws, fmt.Errorf("%w: %d bytes for %d incarnations, %d needed", ErrWindowFormat, len(src), count, want)
	}
	decoded := Windows{horizon: horizon}
	last := uint64(0)
	for i, rest := int64(0), src[windowsHeaderBytes:]; i < count; i, rest = i+1, rest[windowBytes:] {
		incarnation := binary.LittleEndian.Uint64(rest)
		if i > 0 && incarnation <= last {
			return ws, fmt.Errorf("%w: incarnation %d after %d, must ascend", ErrWindowFormat, incarnation, last)
		}
		last = incarnation
		w := decoded.open(incarnation)
		w.floor = binary.LittleEndian.Uint64(rest[8:])
		for j := range w.seen {
			w.seen[j] = binary.LittleEndian.Uint64(rest[16+8*j:])
		}
	}
	return decoded, nil
}
