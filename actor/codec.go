package actor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// frameBuffer collects one outgoing frame. It keeps at most limit bytes but counts
// all, so that an oversize message costs no memory and its size can be named.
type frameBuffer struct {
	b     []byte
	limit int
	total int
}

func (f *frameBuffer) Write(p []byte) (int, error) {
	f.total += len(p)
	if f.total <= f.limit {
		f.b = append(f.b, p...)
	}
	return len(p), nil
}

func (f *frameBuffer) WriteByte(c byte) error {
	f.total++
	if f.total <= f.limit {
		f.b = append(f.b, c)
	}
	return nil
}

// encoder builds frames. It is reused; see encoderPool.
type encoder struct {
	frameBuffer
	enc *msgpack.Encoder
}

type encoderPool struct{ pool sync.Pool }

func (p *encoderPool) get() *encoder {
	e, ok := p.pool.Get().(*encoder)
	if !ok {
		e = &encoder{enc: msgpack.NewEncoder(nil)}
		e.enc.UseArrayEncodedStructs(true)
		e.enc.UseCompactInts(true)
		e.b = make([]byte, 0, 512)
	}
	return e
}

func (p *encoderPool) put(e *encoder) { p.pool.Put(e) }

// begin starts a frame of the given kind; finish fills in its length.
func (e *encoder) begin(k kind) {
	e.b = append(e.b[:0], 0, 0, 0, 0, byte(k))
}

func (e *encoder) finish() []byte {
	binary.LittleEndian.PutUint32(e.b, uint32(len(e.b)-frameLength))
	return e.b
}

func (e *encoder) uint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }

func (e *encoder) str(s string) {
	e.b = binary.AppendUvarint(e.b, uint64(len(s)))
	e.b = append(e.b, s...)
}

// value appends the encoding of v, which has the registered type info; a nil info
// stands for nil.
func (e *encoder) value(info *typeInfo, v any) (err error) {
	if info == nil {
		return nil
	}
	defer func() {
		if r := recover(); r != nil { // a type's own encoder may panic
			err = fmt.Errorf("%w: encode %q: panic: %v", ErrBadMessage, info.name, r)
		}
	}()
	start := len(e.b)
	e.total, e.limit = start, start+MaxMessageBytes
	e.enc.ResetWriter(&e.frameBuffer)
	if err := e.enc.Encode(v); err != nil {
		return fmt.Errorf("%w: encode %q: %w", ErrBadMessage, info.name, err)
	}
	if size := e.total - start; size > MaxMessageBytes {
		return fmt.Errorf("%w: %q takes %d bytes, at most %d", ErrTooLarge, info.name, size, MaxMessageBytes)
	}
	return nil
}

// typeOf finds the registered type of v. A nil v has none and needs none.
func (n *Node) typeOf(v any) (*typeInfo, error) {
	if v == nil {
		return nil, nil
	}
	info := n.types.Load().byType[reflect.TypeOf(v)]
	if info == nil {
		return nil, fmt.Errorf("%w: %T is not registered at node %s", ErrUnknownType, v, n.name)
	}
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
		return nil, fmt.Errorf("%w: nil %T", ErrBadMessage, v)
	}
	return info, nil
}

// decoder decodes payloads. It belongs to one goroutine.
type decoder struct {
	r   bytes.Reader
	dec *msgpack.Decoder
}

func newDecoder() *decoder {
	return &decoder{dec: msgpack.NewDecoder(bytes.NewReader(nil))}
}

// value decodes payload, which is not kept, as the type of that name; an empty
// name is nil. Memory is bounded by the payload's size, whatever it claims.
func (d *decoder) value(n *Node, name string, payload []byte) (v any, err error) {
	if name == "" {
		return nil, nil
	}
	info := n.types.Load().byName[name]
	if info == nil {
		return nil, fmt.Errorf("%w: %q is not registered at node %s", ErrUnknownType, name, n.name)
	}
	if err := checkPayload(payload); err != nil {
		return nil, fmt.Errorf("%w: decode %q: %w", ErrBadMessage, name, err)
	}
	defer func() {
		if r := recover(); r != nil { // a type's own decoder may panic
			err = fmt.Errorf("%w: decode %q: panic: %v", ErrBadMessage, name, r)
		}
	}()
	d.r.Reset(payload)
	d.dec.ResetReader(&d.r)
	p := reflect.New(info.elem)
	if err := d.dec.Decode(p.Interface()); err != nil {
		return nil, fmt.Errorf("%w: decode %q: %w", ErrBadMessage, name, err)
	}
	if info.pointer {
		return p.Interface(), nil
	}
	return p.Elem().Interface(), nil
}
