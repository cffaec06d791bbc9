// Command crc writes the CRC-32C of internal/kernel that folds with carry-less
// multiplication: 256 bytes per turn, in four accumulators of 64.
//
// A CRC is the remainder of the message, read as a polynomial over GF(2), times x^32,
// divided by P. Folding replaces the first part of the message by something shorter with
// the same remainder: if A stands D bits before B, A*x^D+B becomes A*(x^D mod P)+B, and
// the product of 64 and 32 bits fits the 128 bits of B's place. What is left, 16 bytes,
// has the remainder of the whole, and the processor's CRC32 instruction takes it and the
// bytes that did not fill a block.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	block        = 64 // bytes of one accumulator
	accumulators = 4
	lane         = 16 // bytes that are multiplied at a time
)

func main() {
	ConstraintExpr("!noasm")
	shared := make(constants)
	sum(shared, "crc32cWidest", "func(sum uint32, src []byte) uint32",
		"crc32cWidest is crc32cGeneric for a src of 64 bytes or more.", false)
	sum(shared, "copyCRC32CWidest", "func(sum uint32, dst, src []byte) uint32",
		"copyCRC32CWidest copies src, of 64 bytes or more, to a dst as long and returns its sum.", true)
	Generate()
}

// routine is one function under construction. Its destination is nil if it only sums.
type routine struct {
	source, destination, left reg.GPVirtual
	crc                       reg.GPVirtual // the sum, inverted, in 64 bits
	shared                    constants
}

func sum(shared constants, name, signature, doc string, copying bool) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(doc)
	r := routine{source: GP64(), left: GP64(), crc: GP64(), shared: shared}
	Load(Param("src").Base(), r.source)
	Load(Param("src").Len(), r.left)
	if copying {
		r.destination = GP64()
		Load(Param("dst").Base(), r.destination)
	}
	Load(Param("sum"), r.crc.As32())
	NOTL(r.crc.As32())
	r.blocks()
	r.tail()
	NOTL(r.crc.As32())
	Store(r.crc.As32(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// blocks takes whole blocks, of which there is at least one, and leaves their sum in crc.
func (r routine) blocks() {
	start := XMM()
	VMOVD(r.crc.As32(), start) // a sum so far is added to the first bytes
	byBlock := broadcast(r.shared.power("foldBy64", block))
	last := ZMM()
	CMPQ(r.left, U32(accumulators*block))
	JGE(LabelRef("wide"))
	r.take(last, 0)
	VPXORQ(start.AsZ(), last, last)
	r.advance(block)
	JMP(LabelRef("narrow"))

	Label("wide")
	r.wide(start, last, byBlock)

	Label("narrow")
	CMPQ(r.left, U32(block))
	JLT(LabelRef("join"))
	r.fold(last, last, byBlock, 0)
	r.advance(block)
	JMP(LabelRef("narrow"))

	Label("join")
	r.join(last)
}

// wide folds as many times four blocks as there are and leaves the remainder in last.
func (r routine) wide(start, last reg.VecVirtual, byBlock reg.VecVirtual) {
	accumulator := [accumulators]reg.VecVirtual{ZMM(), ZMM(), ZMM(), last}
	byTurn := broadcast(r.shared.power("foldBy256", accumulators*block))
	for i, a := range accumulator {
		r.take(a, i*block)
	}
	VPXORQ(start.AsZ(), accumulator[0], accumulator[0])
	r.advance(accumulators * block)
	CMPQ(r.left, U32(accumulators*block))
	JLT(LabelRef("narrowing"))
	Label("turn")
	for i, a := range accumulator {
		r.fold(a, a, byTurn, i*block)
	}
	r.advance(accumulators * block)
	CMPQ(r.left, U32(accumulators*block))
	JGE(LabelRef("turn"))
	Label("narrowing")
	add(last, accumulator[2], byBlock)
	add(last, accumulator[1], broadcast(r.shared.power("foldBy128", 2*block)))
	add(last, accumulator[0], broadcast(r.shared.power("foldBy192", 3*block)))
}

// join folds the first three lanes of a block into the last and sums that.
func (r routine) join(last reg.VecVirtual) {
	low, high := ZMM(), ZMM()
	VPCLMULQDQ(U8(0x00), r.shared.lanes(), last, low)
	VPCLMULQDQ(U8(0x11), r.shared.lanes(), last, high)
	VPXORQ(low, high, low)
	half, quarter, rest := YMM(), XMM(), XMM()
	VEXTRACTI64X4(U8(1), low, half)
	VPXOR(low.AsY(), half, half)
	VEXTRACTI128(U8(1), half, quarter)
	VPXOR(half.AsX(), quarter, quarter)
	VEXTRACTI32X4(U8(3), last, rest)
	VPXOR(rest, quarter, quarter)
	first, second := GP64(), GP64()
	VMOVQ(quarter, first)
	VPEXTRQ(U8(1), quarter, second)
	XORL(r.crc.As32(), r.crc.As32())
	CRC32Q(first, r.crc)
	CRC32Q(second, r.crc)
}

// tail takes what is less than a block.
func (r routine) tail() {
	Label("words")
	CMPQ(r.left, U32(8))
	JLT(LabelRef("bytes"))
	word := GP64()
	MOVQ(Mem{Base: r.source}, word)
	CRC32Q(word, r.crc)
	if r.destination != nil {
		MOVQ(word, Mem{Base: r.destination})
	}
	r.advance(8)
	JMP(LabelRef("words"))
	Label("bytes")
	TESTQ(r.left, r.left)
	JZ(LabelRef("done"))
	// From memory: Go assembles a byte register SI or DI to the old registers DH and BH.
	CRC32B(Mem{Base: r.source}, r.crc.As32())
	if r.destination != nil {
		single := GP8()
		MOVB(Mem{Base: r.source}, single)
		MOVB(single, Mem{Base: r.destination})
	}
	r.advance(1)
	JMP(LabelRef("bytes"))
	Label("done")
}

// take loads a block, and copies it if that is asked for.
func (r routine) take(v reg.VecVirtual, displacement int) {
	VMOVDQU64(Mem{Base: r.source, Disp: displacement}, v)
	if r.destination != nil {
		VMOVDQU64(v, Mem{Base: r.destination, Disp: displacement})
	}
}

// fold moves a to the place of the block at the displacement and adds that block.
func (r routine) fold(to, a, by reg.VecVirtual, displacement int) {
	low, high := ZMM(), ZMM()
	VPCLMULQDQ(U8(0x00), by, a, low)
	VPCLMULQDQ(U8(0x11), by, a, high)
	r.take(to, displacement)
	VPTERNLOGQ(U8(exclusiveOr), low, high, to)
}

// add moves a to the place of to and adds it.
func add(to, a, by reg.VecVirtual) {
	low, high := ZMM(), ZMM()
	VPCLMULQDQ(U8(0x00), by, a, low)
	VPCLMULQDQ(U8(0x11), by, a, high)
	VPTERNLOGQ(U8(exclusiveOr), low, high, to)
}

// exclusiveOr is the truth table of the exclusive or of three bits.
const exclusiveOr = 0b10010110

func (r routine) advance(count int) {
	ADDQ(U32(count), r.source)
	if r.destination != nil {
		ADDQ(U32(count), r.destination)
	}
	SUBQ(U32(count), r.left)
}

func broadcast(pair Mem) reg.VecVirtual {
	v := ZMM()
	VBROADCASTI32X4(pair, v)
	return v
}
