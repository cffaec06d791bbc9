package actor

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// maxDepth bounds the nesting of a payload.
const maxDepth = 64

var (
	errPayloadShort = errors.New("payload ends inside a value")
	errPayloadTail  = errors.New("payload has bytes after its value")
)

// checkPayload walks over one msgpack value (https://github.com/msgpack/msgpack/blob/master/spec.md)
// without decoding it. It accepts only lengths that the payload really holds, so
// that a decoder which allocates by the claimed lengths stays within the payload's size.
func checkPayload(b []byte) error {
	rest, err := skipValue(b, maxDepth)
	if err == nil && len(rest) > 0 {
		err = errPayloadTail
	}
	return err
}

func skipValue(b []byte, depth int) ([]byte, error) {
	if len(b) == 0 {
		return nil, errPayloadShort
	}
	c := b[0]
	b = b[1:]
	switch {
	case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		return b, nil // small integers, nil, false, true
	case c <= 0x8f:
		return skipValues(b, 2*int(c&0x0f), depth)
	case c <= 0x9f:
		return skipValues(b, int(c&0x0f), depth)
	case c <= 0xbf:
		return skipBytes(b, int(c&0x1f))
	case c == 0xc1:
		return nil, errors.New("payload has the unused code 0xc1")
	}
	return skipSized(b, c, depth)
}

// skipSized skips what follows the codes 0xc4 to 0xdf.
func skipSized(b []byte, c byte, depth int) ([]byte, error) {
	switch c {
	case 0xc4, 0xd9: // bin 8, str 8
		return skipLength(b, 1, 0)
	case 0xc5, 0xda:
		return skipLength(b, 2, 0)
	case 0xc6, 0xdb:
		return skipLength(b, 4, 0)
	case 0xc7, 0xc8, 0xc9: // ext 8, 16, 32: a type byte before the data
		return skipLength(b, 1<<(c-0xc7), 1)
	case 0xca:
		return skipBytes(b, 4)
	case 0xcb:
		return skipBytes(b, 8)
	case 0xcc, 0xcd, 0xce, 0xcf: // unsigned integers
		return skipBytes(b, 1<<(c-0xcc))
	case 0xd0, 0xd1, 0xd2, 0xd3: // integers
		return skipBytes(b, 1<<(c-0xd0))
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext
		return skipBytes(b, 1+1<<(c-0xd4))
	case 0xdc, 0xdd: // array 16, 32
		n, b, err := length(b, 2<<(c-0xdc))
		if err != nil {
			return nil, err
		}
		return skipValues(b, n, depth)
	default: // 0xde, 0xdf: map 16, 32
		n, b, err := length(b, 2<<(c-0xde))
		if err != nil {
			return nil, err
		}
		return skipValues(b, 2*n, depth)
	}
}

func length(b []byte, width int) (int, []byte, error) {
	if len(b) < width {
		return 0, nil, errPayloadShort
	}
	var n int
	switch width {
	case 1:
		n = int(b[0])
	case 2:
		n = int(binary.BigEndian.Uint16(b))
	default:
		n = int(binary.BigEndian.Uint32(b))
	}
	return n, b[width:], nil
}

func skipLength(b []byte, width, extra int) ([]byte, error) {
	n, b, err := length(b, width)
	if err != nil {
		return nil, err
	}
	return skipBytes(b, n+extra)
}

func skipBytes(b []byte, n int) ([]byte, error) {
	if n > len(b) {
		return nil, errPayloadShort
	}
	return b[n:], nil
}

func skipValues(b []byte, n, depth int) ([]byte, error) {
	if depth == 0 {
		return nil, fmt.Errorf("payload is nested deeper than %d", maxDepth)
	}
	if n > len(b) { // each takes at least a byte
		return nil, errPayloadShort
	}
	var err error
	for range n {
		if b, err = skipValue(b, depth-1); err != nil {
			return nil, err
		}
	}
	return b, nil
}
