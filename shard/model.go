package shard

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Limits of a model description. Validate refuses what is over them.
const (
	// MaxLayers is the largest number of layers of one model.
	MaxLayers = 1 << 16
	// MaxNameBytes is the longest layer name, in bytes.
	MaxNameBytes = 255
	// MaxDims is the largest number of dimensions of one layer.
	MaxDims = 8
	// MaxLayerElems is the largest number of elements of one layer; with it
	// no product of sizes in this module overflows an int64.
	MaxLayerElems = 1 << 40
	// MaxSparseRowElems is the largest second dimension of a sparse layer: with it a row
	// is below 256 KiB and travels in one frame.
	MaxSparseRowElems = 65_000
)

// ErrInvalidModel is wrapped by every fault that Model.Validate reports.
var ErrInvalidModel = errors.New("shard: invalid model")

// ID is the index of a shard within a job, dense from 0.
type ID uint32

// Epoch counts the owners of one shard: it grows with each change of its
// owner. The first owner serves at epoch 1; 0 means that it never had one.
type Epoch uint64

// ServerID is the name of a parameter server, unique within a job. The empty
// name stands for "no server".
type ServerID string

// DType is the element type of a layer. The zero value is Float32.
type DType uint8

// Element types. Float32 alone is served today; the others are declared so
// that a description and its files keep their meaning when they come.
const (
	Float32 DType = iota
	Float64
	Float16
	BFloat16
	Float8E4M3
)

// Size is the size of one element in bytes, 0 for an unknown type.
func (d DType) Size() int64 {
	switch d {
	case Float32:
		return 4
	case Float64:
		return 8
	case Float16, BFloat16:
		return 2
	case Float8E4M3:
		return 1
	}
	return 0
}

// String is the name of the type as used in errors and logs.
func (d DType) String() string {
	switch d {
	case Float32:
		return "float32"
	case Float64:
		return "float64"
	case Float16:
		return "float16"
	case BFloat16:
		return "bfloat16"
	case Float8E4M3:
		return "float8_e4m3"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// InitKind says how the elements of a layer get their first values.
type InitKind uint8

// Kinds of first values. Zeros is the zero value.
const (
	// Zeros sets every element to 0.
	Zeros InitKind = iota
	// Uniform draws from [-Scale, Scale).
	Uniform
	// Normal draws from a normal distribution with mean 0 and standard
	// deviation Scale.
	Normal
	// Assigned means that a worker sets the layer before its first use; a
	// push or pull before that is refused.
	Assigned
	// TruncatedNormal draws from a normal distribution with mean 0 and standard
	// deviation Scale, and draws again what is further out than twice Scale.
	TruncatedNormal
	// Xavier draws from [-limit, limit) with a limit of Scale*sqrt(6/(rows+elements of
	// a row)), where a Scale of 0 means 1 (Glorot and Bengio, AISTATS 2010, formula 16).
	Xavier
)

// String is the name of the kind as used in errors and logs.
func (k InitKind) String() string {
	switch k {
	case Zeros:
		return "zeros"
	case Uniform:
		return "uniform"
	case Normal:
		return "normal"
	case Assigned:
		return "assigned"
	case TruncatedNormal:
		return "truncated normal"
	case Xavier:
		return "xavier"
	}
	return fmt.Sprintf("init(%d)", uint8(k))
}

// Initializer describes the first values of a layer. The zero value sets
// zeros. Scale is used by all kinds that draw and must be finite and not
// negative. Values depend on Seed, the layer's name and the element's index within the
// layer (in a sparse layer: the row's id and the index within the row) alone, so that they
// are the same on any number of servers.
type Initializer struct {
	Kind  InitKind
	Scale float32
	Seed  uint64
}

// XavierLimit is the largest absolute value that [Xavier] draws for a layer of rows rows
// of rowElems elements, whatever Kind is.
func (in Initializer) XavierLimit(rows, rowElems int64) float32 {
	scale := float64(in.Scale)
	if scale == 0 {
		scale = 1
	}
	return float32(scale * math.Sqrt(6/max(float64(rows)+float64(rowElems), 1)))
}

// Layer describes one named tensor of a model. Shape[0] is the number of rows; an
// empty Shape is a scalar: one row of one element. A dimension of 0 is
// legal: such a layer has no elements and gets no shard.
//
// A sparse layer is an embedding table: rows of Shape[1] elements, found by int64 ids. A row
// comes into being when it is first pushed to. Shape[0] is the number of rows expected, at
// least 1: ids are spread by hash over that many buckets, and shards and blocks are ranges of
// buckets. It is no limit, but with many more rows blocks are large, and with many fewer
// nearly empty.
//
// Wire is the type in which gradients and parameters of the layer travel between clients and
// servers: Float32 (the zero value), or Float16 or BFloat16, which halve the bytes. Values are
// rounded to the nearest value of that type (ties to even, beyond the largest to infinity),
// also if client and server are on one node. State is kept, and gradients are added, in DType.
// What Client.Assign of package ps sends is never rounded.
//
// With Wire Float8E4M3 gradients take a quarter of the bytes: one for each element and a scale
// for each 128 (see package collective/codec). Parameters then travel as BFloat16.
type Layer struct {
	Name   string
	Shape  []int
	DType  DType
	Wire   DType
	Init   Initializer
	Sparse bool
}

// Elems is the number of elements of the layer: the product of its
// dimensions, 1 for a scalar. It is meaningful for validated layers only.
func (l Layer) Elems() int64 {
	n := int64(1)
	for _, d := range l.Shape {
		n *= int64(d)
	}
	return n
}

// Rows is the first dimension, 1 for a scalar.
func (l Layer) Rows() int {
	if len(l.Shape) == 0 {
		return 1
	}
	return l.Shape[0]
}

// RowElems is the number of elements of one row: the product of the
// dimensions after the first, 1 for vectors and scalars.
func (l Layer) RowElems() int {
	n := 1
	for i, d := range l.Shape {
		if i > 0 {
			n *= d
		}
	}
	return n
}

// Bytes is the size of the layer's elements in bytes.
func (l Layer) Bytes() int64 { return l.Elems() * l.DType.Size() }

// Model is the list of layers of a job, in an order that never changes: a
// layer is addressed by its index.
type Model struct {
	Layers []Layer
}

// Bytes is the size of all elements of all layers in bytes.
func (m Model) Bytes() int64 {
	var n int64
	for _, l := range m.Layers {
		n += l.Bytes()
	}
	return n
}

// Index finds a layer by name. It looks at every layer; callers that ask often
// keep a map of their own.
func (m Model) Index(name string) (int, bool) {
	for i := range m.Layers {
		if m.Layers[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// Validate reports every fault of the description at once, joined; each wraps
// ErrInvalidModel and names the layer, the value and the bound. It does not
// block and changes nothing.
func (m Model) Validate() error {
	if len(m.Layers) == 0 {
		return fmt.Errorf("%w: 0 layers, at least 1 needed", ErrInvalidModel)
	}
	if len(m.Layers) > MaxLayers {
		return fmt.Errorf("%w: %d layers, limit %d", ErrInvalidModel, len(m.Layers), MaxLayers)
	}
	var errs []error
	first := make(map[string]int, len(m.Layers))
	for i, l := range m.Layers {
		if at, ok := first[l.Name]; ok && l.Name != "" {
			errs = append(errs, fmt.Errorf("%w: layers %d and %d are both named %q", ErrInvalidModel, at, i, l.Name))
		} else {
			first[l.Name] = i
		}
		errs = append(errs, l.faults(i)...)
	}
	return errors.Join(errs...)
}

func (l Layer) faults(index int) []error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: layer %d %.64q: %s", ErrInvalidModel, index, l.Name, fmt.Sprintf(format, args...)))
	}
	if l.Name == "" {
		fault("empty name")
	}
	if len(l.Name) > MaxNameBytes {
		fault("name of %d bytes, limit %d", len(l.Name), MaxNameBytes)
	}
	if l.DType != Float32 {
		fault("dtype %v is not served, only %v", l.DType, Float32)
	}
	if l.Wire != Float32 && l.Wire != Float16 && l.Wire != BFloat16 && l.Wire != Float8E4M3 {
		fault("wire type %v, have %v, %v, %v and %v", l.Wire, Float32, Float16, BFloat16, Float8E4M3)
	}
	l.shapeFaults(fault)
	if l.Sparse {
		l.sparseFaults(fault)
	}
	l.Init.faults(fault)
	return errs
}

func (l Layer) sparseFaults(fault func(string, ...any)) {
	if l.Init.Kind == Assigned {
		fault("initializer %v of a sparse layer, whose rows come into being one by one", l.Init.Kind)
	}
	switch {
	case len(l.Shape) != 2:
		fault("%d dimensions of a sparse layer, must be 2", len(l.Shape))
	case l.Shape[0] < 1 || l.Shape[1] < 1 || l.Shape[1] > MaxSparseRowElems:
		fault("shape %v of a sparse layer, must be at least [1 1] and at most %d in the second", l.Shape, MaxSparseRowElems)
	}
}

func (l Layer) shapeFaults(fault func(string, ...any)) {
	if len(l.Shape) > MaxDims {
		fault("%d dimensions, limit %d", len(l.Shape), MaxDims)
		return
	}
	product, bad := uint64(1), false
	for i, d := range l.Shape {
		if d < 0 {
			fault("dimension %d is %d, must be 0 or more", i, d)
			bad = true
			continue
		}
		// A later 0 must not hide a product that is too large: RowElems and
		// other partial products have to fit as well.
		hi, lo := bits.Mul64(product, uint64(max(d, 1)))
		if hi != 0 || lo > MaxLayerElems {
			if !bad {
				fault("shape %v has more than %d elements", l.Shape, int64(MaxLayerElems))
			}
			bad, lo = true, 1
		}
		product = lo
	}
}

func (in Initializer) faults(fault func(string, ...any)) {
	if in.Kind > Xavier {
		fault("initializer kind %d is unknown, last known %d", uint8(in.Kind), uint8(Xavier))
	}
	scale := float64(in.Scale)
	if math.IsNaN(scale) || math.IsInf(scale, 0) || scale < 0 {
		fault("initializer scale %v, must be finite and 0 or more", in.Scale)
	}
}
