package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/elasticps/elasticps/internal/kernel"
)

const (
	// Version is the version of the frame format. A peer with another version is
	// refused with ErrVersion.
	Version = 4
	// HeaderBytes is the size of an encoded header.
	HeaderBytes = 80
	// MaxPayload is the largest payload of a frame in bytes.
	MaxPayload = 256 << 10
	magic      = 0x5045
)

// Errors of Decode and CheckPayload; test with errors.Is.
var (
	ErrMagic    = errors.New("wire: not a frame of this protocol")
	ErrVersion  = errors.New("wire: protocol version not supported")
	ErrChecksum = errors.New("wire: checksum mismatch")
	ErrTooLarge = errors.New("wire: payload over the limit")
	ErrKind     = errors.New("wire: unknown kind of frame")
)

// Kind says what a frame is.
type Kind uint8

// The kinds of frames. Requests carry a Request number that their Reply repeats.
const (
	Hello      Kind = iota + 1 // server to client, first frame: payload = nonce
	Auth                       // client to server: payload = proof of the server's token
	Push                       // gradient of a range of one block
	Assign                     // initial values of one block
	Pull                       // request for a range of one block
	Reply                      // answer to any request; Code says which, payload depends
	Follow                     // owner to follower: a stream of a shard begins
	BlockMeta                  // follower stream: metadata of the next block
	Block                      // follower stream: one section (weights or a slot) of a block
	Forward                    // follower stream: a change of what was sent already
	State                      // follower stream: counters and push windows, behind the last block
	Ack                        // follower to owner: Request = the last change it has, or why there is no stream
	Beat                       // owner to follower and back: the follower still follows
	Retain                     // forwarded only: the incarnations that still exist
	PushRows                   // gradients of rows of a table: payload = their ids, then the values
	PullRows                   // request for rows of a table: payload = their ids
	Expire                     // forwarded only: rows of a block that were not touched for long are gone
	DeleteRows                 // rows of a table are to go: payload = their ids
	kindEnd
)

// More is the flag of a request behind which another one is on its way already: its reply
// may wait for that one's.
const More uint16 = 1

// Header is the fixed part of a frame.
type Header struct {
	Kind        Kind
	Code        uint8  // Reply, Ack: outcome; Forward: kind of the forwarded frame; Block: section
	Encoding    uint8  // element type of the values of a push, and of those that a pull asks for
	Flags       uint16 // More
	Shard       uint32
	Request     uint64 // chosen by the requester, unique on its connection
	Epoch       uint64 // epoch of the shard that the sender believes in
	Incarnation uint64 // of the pushing worker
	Seq         uint64 // of the push, per incarnation and shard
	Floor       uint64 // lowest sequence number that the worker still waits for
	Clock       uint32 // clock of the worker
	Count       uint32 // elements
	Offset      uint64 // first element, from the start of the shard
	Time        uint32 // forwarded: the owner's time that the change of a table was made at
	Length      uint32 // payload bytes
	PayloadSum  uint32 // CRC-32C of the payload, zero without payload
}

// Sum returns the checksum of a payload, over all parts in order.
func Sum(parts ...[]byte) uint32 {
	var sum uint32
	for _, p := range parts {
		sum = Extend(sum, p)
	}
	return sum
}

// Extend returns the checksum of what sum covers followed by part.
func Extend(sum uint32, part []byte) uint32 { return kernel.CRC32C(sum, part) }

// Copy copies the parts to dst, which is as long as all of them, one behind the other, and
// returns the checksum.
func Copy(dst []byte, parts ...[]byte) uint32 {
	var sum uint32
	for _, p := range parts {
		sum = kernel.CopyCRC32C(sum, dst[:len(p)], p)
		dst = dst[len(p):]
	}
	return sum
}

// Encode writes h to dst, which has room for HeaderBytes.
func (h *Header) Encode(dst []byte) {
	_ = dst[HeaderBytes-1]
	le := binary.LittleEndian
	le.PutUint16(dst[0:], magic)
	dst[2] = Version
	dst[3] = byte(h.Kind)
	dst[4] = h.Code
	dst[5] = h.Encoding
	le.PutUint16(dst[6:], h.Flags)
	le.PutUint32(dst[8:], h.Shard)
	le.PutUint32(dst[12:], h.Length)
	le.PutUint64(dst[16:], h.Request)
	le.PutUint64(dst[24:], h.Epoch)
	le.PutUint64(dst[32:], h.Incarnation)
	le.PutUint64(dst[40:], h.Seq)
	le.PutUint64(dst[48:], h.Offset)
	le.PutUint32(dst[56:], uint32(h.Seq-h.Floor))
	le.PutUint32(dst[60:], h.Clock)
	le.PutUint32(dst[64:], h.Count)
	le.PutUint32(dst[68:], h.PayloadSum)
	le.PutUint32(dst[72:], h.Time)
	le.PutUint32(dst[76:], kernel.CRC32C(0, dst[:76]))
}

// Decode reads a header from src, which holds at least HeaderBytes. h is valid
// only when the error is nil.
func (h *Header) Decode(src []byte) error {
	_ = src[HeaderBytes-1]
	le := binary.LittleEndian
	switch {
	case le.Uint16(src[0:]) != magic:
		return ErrMagic
	case src[2] != Version:
		return fmt.Errorf("%w: %d, this side speaks %d", ErrVersion, src[2], Version)
	case le.Uint32(src[76:]) != kernel.CRC32C(0, src[:76]):
		return fmt.Errorf("%w: header", ErrChecksum)
	}
	h.Kind = Kind(src[3])
	h.Code = src[4]
	h.Encoding = src[5]
	h.Flags = le.Uint16(src[6:])
	h.Shard = le.Uint32(src[8:])
	h.Length = le.Uint32(src[12:])
	h.Request = le.Uint64(src[16:])
	h.Epoch = le.Uint64(src[24:])
	h.Incarnation = le.Uint64(src[32:])
	h.Seq = le.Uint64(src[40:])
	h.Offset = le.Uint64(src[48:])
	h.Floor = h.Seq - uint64(le.Uint32(src[56:]))
	h.Clock = le.Uint32(src[60:])
	h.Count = le.Uint32(src[64:])
	h.PayloadSum = le.Uint32(src[68:])
	h.Time = le.Uint32(src[72:])
	if h.Kind == 0 || h.Kind >= kindEnd {
		return fmt.Errorf("%w: %d", ErrKind, h.Kind)
	}
	if h.Length > MaxPayload {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, h.Length, MaxPayload)
	}
	return nil
}

// CheckPayload compares the payload, given in parts, with the header's checksum.
func (h *Header) CheckPayload(parts ...[]byte) error {
	if Sum(parts...) != h.PayloadSum {
		return h.ChecksumError()
	}
	return nil
}

// ChecksumError is the error of a payload whose checksum is not PayloadSum.
func (h *Header) ChecksumError() error {
	return fmt.Errorf("%w: payload of %d bytes, kind %d, shard %d", ErrChecksum, h.Length, h.Kind, h.Shard)
}

// Bytes views values as the bytes that travel, which shares their memory. They are in the
// machine's own order: all supported platforms are little endian.
func Bytes[T float32 | int64 | uint64](x []T) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), int(unsafe.Sizeof(x[0]))*len(x))
}

// Floats views the bytes that travel as values, which shares their memory. It reports
// false when they do not lie aligned or are no whole number of values.
func Floats(b []byte) ([]float32, bool) { return view[float32](b) }

// IDs is Floats for ids of rows.
func IDs(b []byte) ([]int64, bool) { return view[int64](b) }

func view[T float32 | int64](b []byte) ([]T, bool) {
	if len(b) == 0 {
		return nil, true
	}
	var one T
	size := int(unsafe.Sizeof(one))
	p := unsafe.Pointer(unsafe.SliceData(b))
	if len(b)%size != 0 || uintptr(p)%uintptr(size) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), len(b)/size), true
}
