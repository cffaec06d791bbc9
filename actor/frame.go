package actor

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A frame is a 4-byte little-endian length of what follows, a kind byte, and a body
// of unsigned varints, names (a length byte and bytes) and, last, a msgpack payload.
const (
	frameLength = 4
	frameHeader = frameLength + 1
	// maxFrame bounds length: the payload and everything before it.
	maxFrame = MaxMessageBytes + 2<<10
)

// kind says what a frame is.
type kind uint8

const (
	kindCast        kind = 1 + iota // dst, from, type, payload
	kindCall                        // id, flags, timeout in µs, dst, from, type, payload
	kindReply                       // id, type, payload
	kindFail                        // id, number of codes, codes, text
	kindOpen                        // dst, epoch: the sender is going to cast to dst
	kindOpened                      // dst, epoch, credit: it may have so many casts under way
	kindCredit                      // dst, epoch, credit: so many more
	kindClosed                      // dst, epoch, consumed: dst is gone, the rest is lost
	kindPing                        // time in ns, of the sender's clock
	kindPong                        // the same
	kindMonitor                     // id of the watching process, name, ref
	kindDemonitor                   // the same
	kindMonitorExit                 // name, reason, ref
	kindBye                         // the sender closes
)

const flagRemember = 1 // of a call: it may be repeated

var errFrameShort = errors.New("frame ends inside a field")

// fields reads the body of a frame. The first fault is kept in err; reads after it
// return zero values.
type fields struct {
	b   []byte
	err error
}

func (f *fields) uint() uint64 {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.b = f.b[n:]
	return v
}

// name returns a view of a name.
func (f *fields) name() []byte {
	if len(f.b) == 0 {
		f.fail()
		return nil
	}
	return f.bytes(1, uint64(f.b[0]))
}

// text returns a view of a longer string.
func (f *fields) text() []byte { return f.bytes(0, f.uint()) }

func (f *fields) bytes(skip int, n uint64) []byte {
	if n > uint64(len(f.b)-skip) {
		f.fail()
		return nil
	}
	v := f.b[skip : skip+int(n)]
	f.b = f.b[skip+int(n):]
	return v
}

func (f *fields) fail() {
	f.b = nil
	if f.err == nil {
		f.err = errFrameShort
	}
}

// end returns the first fault, or one if bytes are left.
func (f *fields) end() error {
	if f.err == nil && len(f.b) > 0 {
		return fmt.Errorf("frame has %d bytes too many", len(f.b))
	}
	return f.err
}

// castFrame, callFrame and the others are parsed bodies; slices are views.
type castFrame struct {
	dst, from, typ, payload []byte
}

func parseCast(b []byte) (castFrame, error) {
	f := fields{b: b}
	c := castFrame{dst: f.name(), from: f.name(), typ: f.name()}
	c.payload = f.b
	return c, f.err
}

type callFrame struct {
	id, flags, timeout uint64
	castFrame
}

func parseCall(b []byte) (callFrame, error) {
	f := fields{b: b}
	c := callFrame{id: f.uint(), flags: f.uint(), timeout: f.uint()}
	if f.err != nil {
		return c, f.err
	}
	var err error
	c.castFrame, err = parseCast(f.b)
	return c, err
}

type replyFrame struct {
	id           uint64
	typ, payload []byte
}

func parseReply(b []byte) (replyFrame, error) {
	f := fields{b: b}
	r := replyFrame{id: f.uint(), typ: f.name()}
	r.payload = f.b
	return r, f.err
}

type failFrame struct {
	id    uint64
	codes []string
	text  string
}

// maxCodes bounds the codes of one error.
const maxCodes = 16

func parseFail(b []byte) (failFrame, error) {
	f := fields{b: b}
	r := failFrame{id: f.uint()}
	count := f.uint()
	if count > maxCodes {
		return r, fmt.Errorf("frame has %d error codes, at most %d", count, maxCodes)
	}
	for range count {
		r.codes = append(r.codes, string(f.name()))
	}
	r.text = string(f.text())
	return r, f.end()
}

// flowFrame is the body of open, opened, credit and closed; an open has no count.
type flowFrame struct {
	dst          []byte
	epoch, count uint64
}

func parseFlow(k kind, b []byte) (flowFrame, error) {
	f := fields{b: b}
	r := flowFrame{dst: f.name(), epoch: f.uint()}
	if k != kindOpen {
		r.count = f.uint()
	}
	return r, f.end()
}

// refFields are the parts of an ergo reference that differ within a node.
type refFields struct {
	creation uint32
	id       [5]uint32
}

func (f *fields) ref() refFields {
	r := refFields{creation: uint32(f.uint())}
	for i := range r.id {
		r.id[i] = uint32(f.uint())
	}
	return r
}

type monitorFrame struct {
	by   uint64 // monitor and demonitor
	name []byte
	text string // monitorExit: the reason
	ref  refFields
}

func parseMonitor(k kind, b []byte) (monitorFrame, error) {
	f := fields{b: b}
	var m monitorFrame
	if k != kindMonitorExit {
		m.by = f.uint()
	}
	m.name = f.name()
	if k == kindMonitorExit {
		m.text = string(f.text())
	}
	m.ref = f.ref()
	return m, f.end()
}

func parseProbe(b []byte) (uint64, error) {
	f := fields{b: b}
	t := f.uint()
	return t, f.end()
}

// checkLength validates the length of a frame, which counts the kind byte.
func checkLength(n uint32) error {
	if n < 1 || n > maxFrame {
		return fmt.Errorf("%w: frame of %d bytes, want 1 to %d", ErrBadMessage, n, maxFrame)
	}
	return nil
}

// name appends a name, cut to maxName bytes; str appends a longer string.
func (e *encoder) name(s string) {
	if len(s) > maxName {
		s = s[:maxName]
	}
	e.b = append(e.b, byte(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) ref(r refFields) {
	e.uint(uint64(r.creation))
	for _, id := range r.id {
		e.uint(uint64(id))
	}
}
