// Command kernels writes the AVX2 versions of the loops in internal/kernel.
//
// Each version does the operations of its pure-Go twin in the same order, eight
// elements at a time, and rounds every product before it is added: multiply-add
// instructions are not used, because their bits would differ from the twin's.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	lanes  = 8         // float32 in one register
	vector = lanes * 4 // bytes of one register
)

type vec = reg.VecVirtual

func main() {
	ConstraintExpr("!noasm")
	vectors()
	reductions()
	gradientSteps()
	adamSteps()
	Generate()
}

// function is one routine under construction: its slices, which have equal length, a
// multiple of lanes, and the number of elements that are left.
type function struct {
	bases map[string]reg.Register
	left  reg.GPVirtual
}

// begin declares a function of the named slices and whatever else signature has.
func begin(name, signature, doc string, slices ...string) *function {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(doc, "All slices have the length of the first, a multiple of 8.")
	f := &function{bases: make(map[string]reg.Register)}
	for _, s := range slices {
		f.bases[s] = Load(Param(s).Base(), GP64())
	}
	f.left = Load(Param(slices[0]).Len(), GP64()).(reg.GPVirtual)
	return f
}

// at is the address of one register's worth of elements of a slice.
func (f *function) at(slice string, index int) Mem {
	return Mem{Base: f.bases[slice], Disp: index * vector}
}

func (f *function) load(slice string, index int) vec {
	v := YMM()
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
		for _, base := range f.order() {
			ADDQ(U32(count*vector), base)
		}
		SUBQ(U32(count*lanes), f.left)
	}
	CMPQ(f.left, U32(unroll*lanes))
	JLT(LabelRef(narrow))
	Label(wide)
	step(unroll)
	CMPQ(f.left, U32(unroll*lanes))
	JGE(LabelRef(wide))
	Label(narrow)
	TESTQ(f.left, f.left)
	JZ(LabelRef(done))
	step(1)
	JMP(LabelRef(narrow))
	Label(done)
}

// order lists the bases in a fixed order, for output that is the same every time.
func (f *function) order() []reg.Register {
	var bases []reg.Register
	for _, name := range []string{"dst", "x", "y", "w", "g", "m", "v", "h"} {
		if base, ok := f.bases[name]; ok {
			bases = append(bases, base)
		}
	}
	return bases
}

// end returns after the upper halves are cleared, which saves SSE code that follows
// from a penalty.
func end() {
	VZEROUPPER()
	RET()
}

// scalar fills all lanes with a parameter.
func scalar(name string) vec {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := YMM()
	VBROADCASTSS(p.Addr, v)
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
	v := YMM()
	VADDPS(b, a, v)
	return v
}

func sub(a vec, b Op) vec {
	v := YMM()
	VSUBPS(b, a, v)
	return v
}

func mul(a vec, b Op) vec {
	v := YMM()
	VMULPS(b, a, v)
	return v
}

func div(a vec, b Op) vec {
	v := YMM()
	VDIVPS(b, a, v)
	return v
}

func sqrt(a vec) vec {
	v := YMM()
	VSQRTPS(a, v)
	return v
}
