package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// Signatures and slices of the conversions.
const encoding, decoding = "func(dst []uint16, src []float32)", "func(dst []float32, src []uint16)"

var (
	encode = []slice{{"dst", 2}, {"src", 4}}
	decode = []slice{{"dst", 4}, {"src", 2}}
)

// halves are the conversions between float32 and the formats of 16 bits.
func halves() {
	f := avx2.begin("encodeFP16", encoding, "is encodeFP16Generic.", encode...)
	f.loop("encodeFP16", 4, func(i int) {
		const toNearestEven = 0
		converted := XMM() // the form that stores takes twice the time on some processors
		VCVTPS2PH(U8(toNearestEven), f.load("src", i), converted)
		VMOVDQU(converted, f.at("dst", i))
	})
	end()

	f = avx2.begin("decodeFP16", decoding, "is decodeFP16Generic.", decode...)
	f.loop("decodeFP16", 4, func(i int) {
		v := f.register()
		VCVTPH2PS(f.at("src", i), v)
		f.store(v, "dst", i)
	})
	end()

	encodeBF16(avx2)

	f = avx2.begin("decodeBF16", decoding, "is decodeBF16Generic.", decode...)
	f.loop("decodeBF16", 4, func(i int) {
		v := f.register()
		VPMOVZXWD(f.at("src", i), v)
		VPSLLD(U8(16), v, v)
		f.store(v, "dst", i)
	})
	end()
}

// encodeBF16 adds just below half of the last place that stays, and one more where that
// place is odd: the carry rounds to nearest even, and up to infinity at the top. NaN must
// not carry: its upper half is taken, made quiet. The instruction VCVTNEPS2BF16 is not
// used, for it takes denormals as zero.
func encodeBF16(w width) {
	f := w.begin("encodeBF16", encoding, "is encodeBF16Generic.", encode...)
	one, half := f.constant(1), f.constant(1<<15-1)
	quiet := f.constant(1 << 22)
	const unordered = 3 // with itself only NaN is
	f.loop("encodeBF16", 4, func(i int) {
		v := f.load("src", i)
		odd := like(v)
		VPSRLD(U8(16), v, odd)
		odd = and(odd, one)
		rounded := like(v)
		VPADDD(v, half, rounded)
		VPADDD(odd, rounded, rounded)
		if f.width == avx512 {
			nan := K()
			VCMPPS(U8(unordered), v, v, nan)
			VPORD(quiet, v, nan, rounded)
			VPSRLD(U8(16), rounded, rounded)
			lower := YMM()
			VPMOVDW(rounded, lower)
			VMOVDQU(lower, f.at("dst", i))
			return
		}
		nan, quieted := like(v), like(v)
		VCMPPS(U8(unordered), v, v, nan)
		VPOR(quiet, v, quieted)
		VPBLENDVB(nan, quieted, rounded, rounded)
		VPSRLD(U8(16), rounded, rounded)
		upper := XMM()
		VEXTRACTI128(U8(1), rounded, upper)
		VPACKUSDW(upper, rounded.AsX(), upper)
		VMOVDQU(upper, f.at("dst", i))
	})
	end()
}
