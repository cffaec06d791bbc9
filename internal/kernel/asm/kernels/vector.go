package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func vectors() {
	f := begin("addAVX2", "func(dst, x []float32)", "addAVX2 is addGeneric.", "dst", "x")
	f.loop("add", 4, func(i int) {
		f.store(add(f.load("dst", i), f.at("x", i)), "dst", i)
	})
	end()

	f = begin("axpyAVX2", "func(dst []float32, a float32, x []float32)", "axpyAVX2 is axpyGeneric.", "dst", "x")
	a := scalar("a")
	f.loop("axpy", 4, func(i int) {
		product := mul(a, f.at("x", i))
		f.store(add(f.load("dst", i), product), "dst", i)
	})
	end()

	f = begin("scaleAVX2", "func(dst []float32, a float32)", "scaleAVX2 is scaleGeneric.", "dst")
	a = scalar("a")
	f.loop("scale", 4, func(i int) {
		f.store(mul(f.load("dst", i), a), "dst", i)
	})
	end()
}

func reductions() {
	maxAbs()
	dot()
}

// maxAbs keeps four maxima of bit patterns and joins them at the end; the order does
// not matter to integers.
func maxAbs() {
	f := begin("maxAbsAVX2", "func(x []float32) uint32",
		"maxAbsAVX2 returns the bits of what maxAbsGeneric returns.", "x")
	signless := YMM()
	VPCMPEQD(signless, signless, signless)
	VPSRLD(U8(1), signless, signless)
	var largest [4]vec
	for i := range largest {
		largest[i] = YMM()
		VPXOR(largest[i], largest[i], largest[i])
	}
	f.loop("maxAbs", len(largest), func(i int) {
		v := YMM()
		VPAND(f.at("x", i), signless, v)
		VPMAXUD(v, largest[i], largest[i])
	})
	VPMAXUD(largest[1], largest[0], largest[0])
	VPMAXUD(largest[3], largest[2], largest[2])
	VPMAXUD(largest[2], largest[0], largest[0])
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

// dot has one accumulator of four lanes, one for each of the four sums of its twin:
// more of them would be faster and would round differently.
func dot() {
	f := begin("dotAVX2", "func(x, y []float32, sums *[4]float32)",
		"dotAVX2 adds the products to the four sums of dotGeneric.", "x", "y")
	sums := Mem{Base: Load(Param("sums"), GP64())}
	total := XMM()
	VMOVUPS(sums, total)
	f.loop("dot", 4, func(i int) {
		products := mul(f.load("x", i), f.at("y", i))
		upper := XMM()
		VEXTRACTF128(U8(1), products, upper)
		VADDPS(products.AsX(), total, total)
		VADDPS(upper, total, total)
	})
	VMOVUPS(total, sums)
	end()
}
