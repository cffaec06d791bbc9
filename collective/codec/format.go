package codec

import (
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/internal/kernel"
)

// Format is a way to pack float32. The zero value is none.
type Format uint8

// The formats.
const (
	Float16  Format = iota + 1 // IEEE 754 binary16
	BFloat16                   // the upper half of a float32, rounded
	E4M3                       // 8 bits, 4 of them significant, and a float32 for each block
	E5M2                       // 8 bits, 3 of them significant, and a float32 for each block
	MXE4M3                     // E4M3 with a power of two for each 32 elements
	MXE5M2                     // E5M2 with a power of two for each 32 elements
	OneBit                     // signs, and a float32 for each block
	formatEnd
)

// Block is the elements of a block. Slices that are cut at multiples of it are encoded as
// their pieces are, one behind the other.
const Block = 128

// Errors that callers branch on; test with errors.Is.
var (
	// ErrFormat means that there is no such format.
	ErrFormat = errors.New("codec: no such format")
	// ErrLength means that the lengths of numbers and bytes do not go together.
	ErrLength = errors.New("codec: wrong length")
	// ErrCorrupt means that bytes are not what an encoder or Save writes.
	ErrCorrupt = errors.New("codec: damaged bytes")
)

// String returns the name of the format.
func (f Format) String() string {
	names := [...]string{
		0: "none", Float16: "float16", BFloat16: "bfloat16", E4M3: "e4m3", E5M2: "e5m2",
		MXE4M3: "mxe4m3", MXE5M2: "mxe5m2", OneBit: "one bit",
	}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("format %d", f)
}

// Valid reports whether the format exists.
func (f Format) Valid() bool { return f > 0 && f < formatEnd }

// EncodedLen returns how many bytes n elements, not fewer than zero, are encoded to. It is zero
// for a format that does not exist.
func (f Format) EncodedLen(n int) int {
	blocks, groups := (n+Block-1)/Block, (n+group-1)/group
	switch f {
	case Float16, BFloat16:
		return 2 * n
	case E4M3, E5M2:
		return n + scaleBytes*blocks
	case MXE4M3, MXE5M2:
		return n + groups
	case OneBit:
		return (n+7)/8 + scaleBytes*blocks
	}
	return 0
}

// check compares the lengths of numbers and bytes.
func (f Format) check(elements, bytes int) error {
	if !f.Valid() {
		return fmt.Errorf("%w: %v, must be %v to %v", ErrFormat, f, Float16, formatEnd-1)
	}
	if want := f.EncodedLen(elements); bytes != want {
		return fmt.Errorf("%w: %d bytes for %d elements of %v, must be %d", ErrLength, bytes, elements, f, want)
	}
	return nil
}

// Encode packs src into dst, which must have EncodedLen bytes. Its errors are ErrFormat and
// ErrLength.
func (f Format) Encode(dst []byte, src []float32) error {
	if err := f.check(len(src), len(dst)); err != nil {
		return err
	}
	f.encode(dst, src)
	return nil
}

func (f Format) encode(dst []byte, src []float32) {
	switch f {
	case Float16:
		kernel.EncodeFP16Bytes(dst, src)
	case BFloat16:
		kernel.EncodeBF16Bytes(dst, src)
	case E4M3:
		narrowE4M3.encodeScaled(dst, src)
	case E5M2:
		narrowE5M2.encodeScaled(dst, src)
	case MXE4M3:
		narrowE4M3.encodeGroups(dst, src)
	case MXE5M2:
		narrowE5M2.encodeGroups(dst, src)
	case OneBit:
		encodeSigns(dst, src)
	}
}

// Decode unpacks src, which must have EncodedLen bytes for the elements of dst. After an
// error dst holds anything.
func (f Format) Decode(dst []float32, src []byte) error {
	if err := f.check(len(dst), len(src)); err != nil {
		return err
	}
	switch f {
	case Float16:
		kernel.DecodeFP16Bytes(dst, src)
	case BFloat16:
		kernel.DecodeBF16Bytes(dst, src)
	case E4M3:
		return narrowE4M3.decodeScaled(dst, src)
	case E5M2:
		return narrowE5M2.decodeScaled(dst, src)
	case MXE4M3:
		narrowE4M3.decodeGroups(dst, src)
	case MXE5M2:
		narrowE5M2.decodeGroups(dst, src)
	case OneBit:
		return decodeSigns(dst, src)
	}
	return nil
}

// EncodeRest packs x into dst as Encode does and leaves in x what that has lost: the
// difference to what Decode gives, zero where it is not finite.
func (f Format) EncodeRest(dst []byte, x []float32) error {
	if err := f.check(len(x), len(dst)); err != nil {
		return err
	}
	var decoded [8 * Block]float32 // stays in the first-level cache, and so does x
	for len(x) > 0 {
		n := min(len(x), len(decoded))
		bytes := f.EncodedLen(n)
		f.encode(dst[:bytes], x[:n])
		if err := f.Decode(decoded[:n], dst[:bytes]); err != nil {
			return err
		}
		lost(x[:n], decoded[:n])
		x, dst = x[n:], dst[bytes:]
	}
	return nil
}

// lost leaves in x its difference to y, and zero for what is not finite.
func lost(x, y []float32) {
	kernel.Axpy(x, -1, y)
	dropNonFinite(x)
}

// dropNonFinite sets to zero what is not finite.
func dropNonFinite(x []float32) {
	if kernel.AllFinite(x) {
		return
	}
	for i := range x {
		if x[i]-x[i] != 0 {
			x[i] = 0
		}
	}
}
