package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// float8 is a format of 8 bits.
type float8 struct {
	name        string
	fraction    uint32 // bits
	bias        uint32
	leastNormal uint32 // the bits of that float32
	magic       uint32 // of the float32 whose last place is the least number of the format
	infinity    uint32 // code of what is above the parameter infinite
	nan         uint32
}

var (
	e4m3 = float8{"E4M3", 3, 7, (127 - 6) << 23, (127 + 14) << 23, 0x7f, 0x7f}
	e5m2 = float8{"E5M2", 2, 15, (127 - 14) << 23, (127 + 7) << 23, 0x7c, 0x7e}
)

// octet is how many registers of float32 make one of codes.
const octet = 4

func bytes() {
	order := avx2.table("order", 0, 4, 1, 5, 2, 6, 3, 7)
	signs := avx2.table("signs", 0x80808080)
	for _, f := range []float8{e4m3, e5m2} {
		f.encode(order, signs)
	}
	decodeE4M3()
	decodeE5M2()
}

// table is read-only memory of one register, in which the bits are repeated.
func (w width) table(name string, bits ...uint32) Mem {
	m := GLOBL(name, 8|16) // RODATA, NOPTR
	for i := range int(w) {
		DATA(4*i, U32(bits[i%len(bits)]))
	}
	return m
}

// encode takes the sign from the source, which packing with saturation keeps.
func (f float8) encode(order, signs Mem) {
	one, infinity, nan := avx2.table("one"+f.name, 1), avx2.table("infinity"+f.name, f.infinity), avx2.table("nan"+f.name, f.nan)
	w := avx2.beginMultiple(octet*int(avx2), "encode"+f.name, "func(dst []byte, src []float32, scale float32, clip, infinite uint32)",
		"is encode"+f.name+"Generic.", slice{"dst", 1}, slice{"src", 4})
	scale, clip, infinite := w.scalar("scale"), w.scalar("clip"), w.scalar("infinite")
	dropped := 23 - f.fraction
	half := w.constant(1<<(dropped-1) - 1 - (127-f.bias)<<23) // and the other bias
	signless, leastNormal, magic := w.constant(1<<31-1), w.constant(f.leastNormal), w.constant(f.magic)
	var codes []vec
	w.loop("encode"+f.name, octet, func(i int) {
		abs := and(mul(scale, w.at("src", i)), signless)
		special := w.register()
		VPCMPGTD(infinite, abs, special)
		special = and(special, infinity)
		if f.nan != f.infinity {
			unordered := w.register()
			VCMPPS(U8(3), abs, abs, unordered)
			VPMAXUD(and(unordered, nan), special, special)
		}
		VPMINUD(clip, abs, abs)
		code := f.round(abs, half, leastNormal, magic, one)
		VPMAXUD(special, code, code)
		codes = append(codes, code)
		if len(codes) < octet {
			return
		}
		join(codes[0], codes[1], codes[2], codes[3], VPACKUSDW, VPACKUSWB)
		first, second := w.load("src", 0), w.load("src", 2)
		join(first, w.at("src", 1), second, w.at("src", 3), VPACKSSDW, VPACKSSWB)
		VPAND(signs, first, first)
		VPOR(codes[0], first, first)
		VMOVDQU(order, second)
		VPERMD(first, second, first)
		VMOVDQU(first, w.at("dst", 0))
		codes = nil
	})
	end()
}

// join packs a, b, c and d into a, in the order of the halves of registers: half of
// each, then the other half of each. It uses c.
func join(a vec, b Op, c vec, d Op, words, bytes func(...Op)) {
	words(b, a, a)
	words(d, c, c)
	bytes(c, a, a)
}

// round is the code of a clipped absolute value. Half of the last place that stays is added,
// less one bit where that place is even, and the carry goes on into the exponent; below the
// normal numbers an addition rounds.
func (f float8) round(abs, half, leastNormal, magic vec, one Mem) vec {
	dropped := U8(23 - f.fraction)
	code, small, below := like(abs), like(abs), like(abs)
	VPSRLD(dropped, abs, code)
	VPAND(one, code, code)
	VPADDD(half, code, code)
	VPADDD(abs, code, code)
	VPSRLD(dropped, code, code)
	VADDPS(magic, abs, small)
	VPSUBD(magic, small, small)
	VPCMPGTD(abs, leastNormal, below)
	VPBLENDVB(below, small, code, code)
	return code
}

const decodingBytes = "func(dst []float32, src []byte, scale float32)"

// decodeE5M2 knows that its codes are the upper halves of those of float16.
func decodeE5M2() {
	f := avx2.beginMultiple(2*int(avx2), "decodeE5M2", decodingBytes, "is decodeE5M2Generic.", slice{"dst", 4}, slice{"src", 1})
	scale := f.scalar("scale")
	f.loop("decodeE5M2", 2, func(i int) {
		if i > 0 {
			return
		}
		half := f.register()
		VPMOVZXBW(f.at("src", 0), half)
		VPSLLW(U8(8), half, half)
		f.widen(half, func(v vec) vec { return mul(v, scale) })
	})
	end()
}

// decodeE4M3 moves exponent and fraction to where float16 has them, which makes the number
// less by 2^8.
func decodeE4M3() {
	f := avx2.beginMultiple(2*int(avx2), "decodeE4M3", decodingBytes, "is decodeE4M3Generic.", slice{"dst", 4}, slice{"src", 1})
	scale := f.scalar("scale")
	fraction, nan, sign := f.constant(0x3f80_3f80), f.constant(0x3f80_3f80), f.constant(0x8000_8000)
	rebias := f.constant((127 + 8) << 23)
	f.loop("decodeE4M3", 2, func(i int) {
		if i > 0 {
			return
		}
		code, abs, none := f.register(), f.register(), f.register()
		VPMOVZXBW(f.at("src", 0), code)
		VPSLLW(U8(7), code, abs)
		abs = and(abs, fraction)
		VPCMPEQW(nan, abs, none)
		VPSLLW(U8(10), none, none) // all bits of the exponent, and a quiet fraction
		VPSRLW(U8(1), none, none)
		VPSLLW(U8(8), code, code)
		code = and(code, sign)
		VPOR(abs, code, code)
		VPOR(none, code, code)
		f.widen(code, func(v vec) vec { return mul(mul(v, rebias), scale) })
	})
	end()
}

// widen writes 16 float16 as float32, after what is done to each.
func (f *function) widen(half vec, do func(vec) vec) {
	low, high, upper := f.register(), f.register(), XMM()
	VEXTRACTI128(U8(1), half, upper)
	VCVTPH2PS(half.AsX(), low)
	VCVTPH2PS(upper, high)
	f.store(do(low), "dst", 0)
	f.store(do(high), "dst", 1)
}
