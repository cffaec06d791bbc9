package collective

import (
	"fmt"
	"unsafe"
)

// Type is the type of the elements of a buffer.
type Type uint8

// The types. Values of two bytes are converted to float32, combined, and rounded once
// at the end (to nearest, from the middle to even) by every algorithm that is chosen
// automatically.
const (
	Float32 Type = iota + 1
	Float64
	Float16  // IEEE 754 binary16
	BFloat16 // the upper half of a float32
	Int32
	Int64
	Uint8
	typeEnd
)

// Half holds the bits of an IEEE 754 binary16 number.
type Half uint16

// Brain holds the bits of a bfloat16 number.
type Brain uint16

// Element is the types of Go that a buffer may consist of.
type Element interface {
	float32 | float64 | Half | Brain | int32 | int64 | uint8
}

// Bytes returns the size of one element, zero for a type that does not exist.
func (t Type) Bytes() int {
	switch t {
	case Float32, Int32:
		return 4
	case Float64, Int64:
		return 8
	case Float16, BFloat16:
		return 2
	case Uint8:
		return 1
	}
	return 0
}

// String returns the usual name of the type.
func (t Type) String() string {
	names := [...]string{0: "none", Float32: "float32", Float64: "float64", Float16: "float16", BFloat16: "bfloat16", Int32: "int32", Int64: "int64", Uint8: "uint8"}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("type %d", t)
}

// half reports whether sums of the type need float32.
func (t Type) half() bool { return t == Float16 || t == BFloat16 }

// Buffer is memory of the caller: elements of one type. The zero value has no elements
// and no type. It shares the memory of the slice that it was made of, or is of Group.Alloc.
type Buffer struct {
	kind  Type
	bytes []byte
	from  *allocation // nil unless it is of Alloc
	at    int         // where in it, in bytes
}

// Of returns the elements of a slice as a buffer. The memory stays the caller's.
func Of[T Element](x []T) Buffer {
	var one T
	size := int(unsafe.Sizeof(one))
	return Buffer{kind: typeOf(one), bytes: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), size*len(x))}
}

func typeOf(one any) Type {
	switch one.(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case Half:
		return Float16
	case Brain:
		return BFloat16
	case int32:
		return Int32
	case int64:
		return Int64
	}
	return Uint8
}

// Type returns the type of the elements.
func (b Buffer) Type() Type { return b.kind }

// Len returns the number of elements.
func (b Buffer) Len() int {
	if b.kind == 0 {
		return 0
	}
	return len(b.bytes) / b.kind.Bytes()
}

// overlap says how two buffers lie: apart, or src where part number part of dst's size
// begins, or otherwise, which nobody can work with.
func overlap(dst, src []byte) (shared bool, offset int) {
	if len(dst) == 0 || len(src) == 0 {
		return false, 0
	}
	d, s := uintptr(unsafe.Pointer(&dst[0])), uintptr(unsafe.Pointer(&src[0]))
	if d >= s+uintptr(len(src)) || s >= d+uintptr(len(dst)) {
		return false, 0
	}
	return true, int(d) - int(s)
}

// as views bytes as elements. They lie aligned: they come from a slice of that type, or
// from memory that was allocated for any.
func as[T any](b []byte) []T {
	var one T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(one)))
}
