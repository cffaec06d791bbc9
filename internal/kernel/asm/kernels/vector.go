package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func vectors() {
	f := avx2.begin("add", "func(dst, x []float32)", "is addGeneric.", float32s("dst", "x")...)
	f.loop("add", 4, func(i int) {
		f.store(add(f.load("dst", i), f.at("x", i)), "dst", i)
	})
	end()

	f = avx2.begin("axpy", "func(dst []float32, a float32, x []float32)", "is axpyGeneric.", float32s("dst", "x")...)
	a := f.scalar("a")
	f.loop("axpy", 4, func(i int) {
		product := mul(a, f.at("x", i))
		f.store(add(f.load("dst", i), product), "dst", i)
	})
	end()

	f = avx2.begin("scale", "func(dst []float32, a float32)", "is scaleGeneric.", float32s("dst")...)
	a = f.scalar("a")
	f.loop("scale", 4, func(i int) {
		f.store(mul(f.load("dst", i), a), "dst", i)
	})
	end()
}

func reductions() {
	maxAbs()
	dot()
}

// accumulators is the number of registers in which a reduction keeps independent sums,
// so that one operation need not wait for the one before.
const accumulators = 4

// maxAbs keeps maxima of bit patterns and joins them at the end; the order does not
// matter to integers.
func maxAbs() {
	f := avx2.begin("maxAbs", "func(x []float32) uint32",
		"returns the bits of what maxAbsGeneric returns.", float32s("x")...)
	signless := f.constant(1<<31 - 1)
	var largest [accumulators]vec
	for i := range largest {
		largest[i] = f.register()
		VPXOR(largest[i], largest[i], largest[i])
	}
	f.loop("maxAbs", accumulators, func(i int) {
		v := and(signless, f.at("x", i))
		VPMAXUD(v, largest[i], largest[i])
	})
	for _, v := range largest[1:] {
		VPMAXUD(v, largest[0], largest[0])
	}
	low, high := largest[0].AsX(), XMM()
	VEXTRACTI128(U8(1), largest[0], high)
	VPMAXUD(high, low, low)
	VPSHUFD(U8(0b01_00_11_10), low, high)
	VPMAXUD(high, low, low)
	VPSHUFD(U8(0b10_11_00_01), low, high)
	VPMAXUD(high, low, low)
	result := GP32()
	VMOVD(low, result)
	Store(result, ReturnIndex(0))
	end()
}

// sumsOfDot is the number of sums that the twin keeps: element i belongs to sum i%32.
const sumsOfDot = 32

// dot has one lane for each of the sums of its twin, in as many registers as that takes.
func dot() {
	f := avx2.beginMultiple(sumsOfDot, "dot", "func(x, y []float32, sums *[32]float32)",
		"adds the products to the sums of dotGeneric.", float32s("x", "y")...)
	base := Load(Param("sums"), GP64())
	var totals [sumsOfDot / int(avx2)]vec
	place := func(i int) Mem { return Mem{Base: base, Disp: i * int(avx2) * 4} }
	for i := range totals {
		totals[i] = f.register()
		VMOVUPS(place(i), totals[i])
	}
	f.loop("dot", len(totals), func(i int) {
		VADDPS(mul(f.load("x", i), f.at("y", i)), totals[i], totals[i])
	})
	for i, total := range totals {
		VMOVUPS(total, place(i))
	}
	end()
}
