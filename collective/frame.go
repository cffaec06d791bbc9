package collective

import (
	"encoding/binary"
	"fmt"

	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/kernel"
)

const (
	headerBytes = 64
	// maxFrame bounds the payload of a frame, and so the segments.
	maxFrame = 1 << 20
	// maxNote bounds the payload of a control frame.
	maxNote   = 4 << 10
	magic     = 0x4c43
	wireLevel = 3 // version of the protocol
)

// frameKind says what a frame is.
type frameKind uint8

const (
	frameData     frameKind = iota + 1 // elements
	frameBeat                          // the sender lives
	frameAbort                         // the sender's group has failed; payload: why
	frameLeave                         // the sender closes its group
	frameAnnounce                      // the call that the sender has been waiting in
	frameKindEnd
)

// Fingerprint is what all ranks must agree on in a call.
type Fingerprint struct {
	Collective Collective
	Type       Type
	Op         Op
	Algorithm  schedule.Algorithm
	Codec      codec.Format // how elements travel; zero: as they are
	Root       int
	Count      int // elements, as in the shape of the schedule
	Buffer     int // which buffer of Alloc it combines on all ranks at once, from 1; 0: none
	Offset     int // bytes into it
}

// String names what was called.
func (f Fingerprint) String() string {
	s := f.Collective.String()
	if f.Collective == Barrier {
		return s
	}
	s += fmt.Sprintf(" of %d %v", f.Count, f.Type)
	if f.Codec != 0 {
		s += fmt.Sprintf(" as %v", f.Codec)
	}
	if f.Op != 0 && f.Collective != allocate {
		s += " " + f.Op.String()
	}
	if f.Collective == Broadcast || f.Collective == Reduce {
		s += fmt.Sprintf(" root %d", f.Root)
	}
	if f.Buffer > 0 {
		s += fmt.Sprintf(" in buffer %d at %d", f.Buffer, f.Offset)
	}
	if f.Algorithm != 0 {
		s += " by " + f.Algorithm.String()
	}
	return s
}

// bytes is the size of what is combined or moved, of one part where ranks have parts.
func (f *Fingerprint) bytes() int { return f.Count * f.Type.Bytes() }

// units are what a plan divides: elements or, where they are packed, blocks of them.
func (f *Fingerprint) units() int {
	if f.Codec == 0 {
		return f.Count
	}
	return (f.Count + codec.Block - 1) / codec.Block
}

// unitBytes is the size of a unit on the way; the last one may have less.
func (f *Fingerprint) unitBytes() int {
	if f.Codec == 0 {
		return f.Type.Bytes()
	}
	return f.Codec.EncodedLen(codec.Block)
}

// header is the fixed part of a frame.
type header struct {
	kind   frameKind
	call   Fingerprint
	epoch  uint64
	seq    uint64 // of the call
	part   uint32 // frame of the call between these two ranks
	length uint32 // payload bytes
}

func (h *header) encode(dst *[headerBytes]byte) {
	le := binary.LittleEndian
	le.PutUint16(dst[0:], magic)
	dst[2], dst[3] = wireLevel, byte(h.kind)
	dst[4], dst[5], dst[6], dst[7] = byte(h.call.Collective), byte(h.call.Type), byte(h.call.Op), byte(h.call.Algorithm)
	le.PutUint32(dst[8:], uint32(h.call.Root))
	le.PutUint32(dst[12:], h.part)
	le.PutUint64(dst[16:], h.epoch)
	le.PutUint64(dst[24:], h.seq)
	le.PutUint64(dst[32:], uint64(h.call.Count))
	le.PutUint32(dst[40:], h.length)
	le.PutUint32(dst[44:], uint32(h.call.Buffer))
	le.PutUint64(dst[48:], uint64(h.call.Offset))
	dst[56] = byte(h.call.Codec)
	clear(dst[57:60])
	le.PutUint32(dst[60:], kernel.CRC32C(0, dst[:60]))
}

func (h *header) decode(src []byte) error {
	_ = src[headerBytes-1]
	le := binary.LittleEndian
	switch {
	case le.Uint16(src) != magic:
		return fmt.Errorf("%w: not a frame of this protocol", ErrRefused)
	case src[2] != wireLevel:
		return fmt.Errorf("%w: protocol version %d, this side speaks %d", ErrRefused, src[2], wireLevel)
	case le.Uint32(src[60:]) != kernel.CRC32C(0, src[:60]):
		return fmt.Errorf("%w: checksum of a header", ErrRefused)
	}
	h.kind = frameKind(src[3])
	h.call = Fingerprint{
		Collective: Collective(src[4]), Type: Type(src[5]), Op: Op(src[6]), Algorithm: schedule.Algorithm(src[7]),
		Codec: codec.Format(src[56]), Root: int(le.Uint32(src[8:])), Count: int(le.Uint64(src[32:])),
		Buffer: int(le.Uint32(src[44:])), Offset: int(le.Uint64(src[48:])),
	}
	h.part, h.epoch, h.seq, h.length = le.Uint32(src[12:]), le.Uint64(src[16:]), le.Uint64(src[24:]), le.Uint32(src[40:])
	if h.kind == 0 || h.kind >= frameKindEnd {
		return fmt.Errorf("%w: frame of kind %d", ErrRefused, h.kind)
	}
	if h.length > maxFrame {
		return fmt.Errorf("%w: frame of %d bytes, limit %d", ErrRefused, h.length, maxFrame)
	}
	return nil
}
