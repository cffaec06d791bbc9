package accelerator

import (
	"fmt"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

// Vendor is who makes the devices.
type Vendor uint8

// The vendors, with their library and the build tag that a program needs for it.
const (
	NVIDIA       = Vendor(abi.NVIDIA)       // NCCL, tag nccl
	AMD          = Vendor(abi.AMD)          // RCCL, tag rccl
	MooreThreads = Vendor(abi.MooreThreads) // MCCL, tag musa
	Ascend       = Vendor(abi.Ascend)       // HCCL, tag hccl
)

// String returns the name of the vendor.
func (v Vendor) String() string {
	names := [...]string{"none", NVIDIA: "NVIDIA", AMD: "AMD", MooreThreads: "Moore Threads", Ascend: "Ascend"}
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("vendor %d", v)
}

// Backend returns the word that package collective has for the library of the vendor, as in
// collective.Offer; zero for a vendor that does not exist.
func (v Vendor) Backend() collective.Backend {
	backends := [...]collective.Backend{NVIDIA: collective.NCCL, AMD: collective.RCCL, MooreThreads: collective.MCCL, Ascend: collective.HCCL}
	if int(v) < len(backends) {
		return backends[v]
	}
	return 0
}

// Type is the type of elements on a device. Those that package collective knows have its
// numbers.
type Type uint8

// The types.
const (
	Float32  = Type(collective.Float32)
	Float64  = Type(collective.Float64)
	Float16  = Type(collective.Float16)
	BFloat16 = Type(collective.BFloat16)
	Int32    = Type(collective.Int32)
	Int64    = Type(collective.Int64)
	Uint8    = Type(collective.Uint8)
)

// firstOwn is the first number of types and operations that package collective has not.
const firstOwn = 16

// The types that devices alone have.
const (
	Int8 Type = firstOwn + iota
	Uint32
	Uint64
	Float8E4M3 // 4 bits of exponent, 3 of mantissa, no infinity
	Float8E5M2 // 5 bits of exponent, 2 of mantissa
	typeEnd
)

// typeRow is what is known of a type: its size and the numbers of the vendors.
type typeRow struct {
	name           string
	bytes          int
	family, ascend int
}

var typeRows = [typeEnd]typeRow{
	Float32:    {"float32", 4, 7, 4},
	Float64:    {"float64", 8, 8, 10},
	Float16:    {"float16", 2, 6, 3},
	BFloat16:   {"bfloat16", 2, 9, 11},
	Int32:      {"int32", 4, 2, 2},
	Int64:      {"int64", 8, 4, 5},
	Uint8:      {"uint8", 1, 1, 7},
	Int8:       {"int8", 1, 0, 0},
	Uint32:     {"uint32", 4, 3, 9},
	Uint64:     {"uint64", 8, 5, 6},
	Float8E4M3: {"float8e4m3", 1, 10, 15},
	Float8E5M2: {"float8e5m2", 1, 11, 16},
}

// Bytes returns the size of one element, zero for a type that does not exist.
func (t Type) Bytes() int {
	if t < typeEnd {
		return typeRows[t].bytes
	}
	return 0
}

// String returns the usual name of the type.
func (t Type) String() string {
	if t.Bytes() > 0 {
		return typeRows[t].name
	}
	return fmt.Sprintf("type %d", t)
}

// code is the vendor's number.
func (t Type) code(v Vendor) int {
	if v == Ascend {
		return typeRows[t].ascend
	}
	return typeRows[t].family
}

// opCode is the vendor's number of an operation. HCCL has no average.
func opCode(o collective.Op) int {
	return [...]int{collective.Sum: 0, collective.Product: 1, collective.Max: 2, collective.Min: 3, collective.Average: 4}[o]
}

// Operation says what a call does. Those that package collective knows have its numbers.
type Operation uint8

// The operations.
const (
	AllReduce     = Operation(collective.AllReduce)
	ReduceScatter = Operation(collective.ReduceScatter)
	AllGather     = Operation(collective.AllGather)
	Broadcast     = Operation(collective.Broadcast)
	Reduce        = Operation(collective.Reduce)
	AllToAll      = Operation(collective.AllToAll)
	Barrier       = Operation(collective.Barrier)
)

// Messages, which have their place among the calls of a group here.
const (
	Send Operation = firstOwn + iota
	Recv
)

// String returns the name of the operation.
func (o Operation) String() string {
	switch o {
	case Send:
		return "send"
	case Recv:
		return "receive"
	}
	return collective.Collective(o).String()
}

// reduces reports whether elements are combined.
func (o Operation) reduces() bool {
	return o == AllReduce || o == ReduceScatter || o == Reduce || o == Barrier
}
