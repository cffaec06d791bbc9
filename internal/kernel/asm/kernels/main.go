// Command kernels writes the AVX2 versions of the loops in internal/kernel, and one for
// AVX-512.
//
// Each version does the operations of its pure-Go twin in the same order, eight or
// sixteen elements at a time, and rounds every product before it is added: multiply-add
// instructions are not used, because their bits would differ from the twin's.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// width is the number of float32 in one register.
type width int

const (
	avx2   width = 8
	avx512 width = 16
)

// suffix is what the name of a version ends in.
func (w width) suffix() string {
	if w == avx512 {
		return "Widest"
	}
	return "Wide"
}

// register returns a new one.
func (w width) register() vec {
	if w == avx512 {
		return ZMM()
	}
	return YMM()
}

// like returns a new register as wide as v.
func like(v vec) vec { return width(v.Size() / 4).register() }

type vec = reg.VecVirtual

func main() {
	ConstraintExpr("!noasm")
	vectors()
	reductions()
	gradientSteps()
	adamSteps()
	ftrl()
	halves()
	bytes()
	prefetch()
	encodeBF16(avx512) // the only one that gains a tenth or more, see internal/kernel
	Generate()
}

// slice is a parameter: its name and the size of its elements.
type slice struct {
	name string
	size int
}

// float32s are slices of that type.
func float32s(names ...string) []slice {
	var all []slice
	for _, name := range names {
		all = append(all, slice{name, 4})
	}
	return all
}

// function is one routine under construction: its slices, which have equal length, a
// multiple of the width, and the number of elements that are left.
type function struct {
	width
	multiple int // of which the lengths are
	slices   []slice
	bases    map[string]reg.Register
	left     reg.GPVirtual
}

// begin declares a function of the slices and whatever else signature has. Its name gets
// the suffix of the width, and its doc is put behind the name.
func (w width) begin(name, signature, doc string, slices ...slice) *function {
	return w.beginMultiple(int(w), name, signature, doc, slices...)
}

// beginMultiple is begin for slices whose length is a multiple of more than the width.
func (w width) beginMultiple(multiple int, name, signature, doc string, slices ...slice) *function {
	TEXT(name+w.suffix(), NOSPLIT, signature)
	Pragma("noescape")
	Doc(name+w.suffix()+" "+doc, fmt.Sprintf("All slices have the length of the first, a multiple of %d.", multiple))
	f := &function{width: w, multiple: multiple, slices: slices, bases: make(map[string]reg.Register)}
	for _, s := range slices {
		f.bases[s.name] = Load(Param(s.name).Base(), GP64())
	}
	f.left = Load(Param(slices[0].name).Len(), GP64()).(reg.GPVirtual)
	return f
}

// at is the address of one register's worth of elements of a slice.
func (f *function) at(name string, index int) Mem {
	for _, s := range f.slices {
		if s.name == name {
			return Mem{Base: f.bases[name], Disp: index * int(f.width) * s.size}
		}
	}
	panic("no slice " + name)
}

func (f *function) load(slice string, index int) vec {
	v := f.register()
	VMOVUPS(f.at(slice, index), v)
	return v
}

func (f *function) store(v vec, slice string, index int) {
	VMOVUPS(v, f.at(slice, index))
}

// loop emits body for every register's worth of elements, unrolled so many times.
func (f *function) loop(label string, unroll int, body func(index int)) {
	wide, narrow, done := label+"Wide", label+"Narrow", label+"Done"
	step := func(count int) {
		for i := range count {
			body(i)
		}
		for _, s := range f.slices {
			ADDQ(U32(count*int(f.width)*s.size), f.bases[s.name])
		}
		SUBQ(U32(count*int(f.width)), f.left)
	}
	CMPQ(f.left, U32(unroll*int(f.width)))
	JLT(LabelRef(narrow))
	Label(wide)
	step(unroll)
	CMPQ(f.left, U32(unroll*int(f.width)))
	JGE(LabelRef(wide))
	Label(narrow)
	if f.multiple < unroll*int(f.width) {
		TESTQ(f.left, f.left)
		JZ(LabelRef(done))
		step(1)
		JMP(LabelRef(narrow))
		Label(done)
	}
}

// end returns after the upper halves are cleared, which saves SSE code that follows
// from a penalty.
func end() {
	VZEROUPPER()
	RET()
}

// scalar fills all lanes with a parameter.
func (f *function) scalar(name string) vec {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := f.register()
	VBROADCASTSS(p.Addr, v)
	return v
}

// constant fills all lanes with bits.
func (w width) constant(bits uint32) vec {
	general, low, v := GP32(), XMM(), w.register()
	MOVL(U32(bits), general)
	VMOVD(general, low)
	VPBROADCASTD(low, v)
	return v
}

// and takes the bits that both have.
func and(a vec, b Op) vec {
	v := like(a)
	if v.Size() == 64 {
		VPANDD(b, a, v)
	} else {
		VPAND(b, a, v)
	}
	return v
}

// unlessZero jumps to label unless the parameter is zero of either sign. NaN is not zero.
func unlessZero(name, label string) {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	zero := XMM()
	VXORPS(zero, zero, zero)
	VUCOMISS(p.Addr, zero)
	JNE(LabelRef(label))
	JPS(LabelRef(label))
}

func add(a vec, b Op) vec {
	v := like(a)
	VADDPS(b, a, v)
	return v
}

func sub(a vec, b Op) vec {
	v := like(a)
	VSUBPS(b, a, v)
	return v
}

func mul(a vec, b Op) vec {
	v := like(a)
	VMULPS(b, a, v)
	return v
}

func div(a vec, b Op) vec {
	v := like(a)
	VDIVPS(b, a, v)
	return v
}

func sqrt(a vec) vec {
	v := like(a)
	VSQRTPS(a, v)
	return v
}
