package main

import (
	"hash/crc32"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// remainder returns x^exponent mod P, the coefficient of x^31 in the lowest bit as in all
// registers of this CRC.
func remainder(exponent int) uint32 {
	r := bits.Reverse32(1) // x^0
	for range exponent {
		carry := r & 1 // the coefficient of x^31 becomes that of x^32, which is P without it
		r >>= 1
		if carry != 0 {
			r ^= crc32.Castagnoli
		}
	}
	return r
}

// factors returns what the first and the last eight bytes of a lane are multiplied with
// to move them on by so many bytes. Bit i of a 64-bit register is the coefficient of
// x^(63-i) and bit i of the 128-bit product that of x^(127-i), while the product of the
// polynomials has x^126 where i is 0: multiplication of registers comes with a factor x,
// which the exponent makes up for. The first eight bytes stand 64 bits higher. The 32
// coefficients are the lowest of 64, so they stand in the upper half.
func factors(distance int) (first, last uint64) {
	d := 8 * distance
	return uint64(remainder(d+63)) << 32, uint64(remainder(d-1)) << 32
}

// constants are the data sections that exist already: the routines share them.
type constants map[string]Mem

// power returns the pair of factors for a distance.
func (c constants) power(name string, distance int) Mem {
	return c.define(name, []int{distance})
}

// lanes returns the factors that move each lane of a block to the place of the last, and
// zeros for the last.
func (c constants) lanes() Mem {
	return c.define("foldLanes", []int{3 * lane, 2 * lane, lane, 0})
}

func (c constants) define(name string, distances []int) Mem {
	if section, defined := c[name]; defined {
		return section
	}
	c[name] = GLOBL(name, RODATA|NOPTR)
	for i, distance := range distances {
		var first, last uint64
		if distance > 0 {
			first, last = factors(distance)
		}
		DATA(i*lane, U64(first))
		DATA(i*lane+8, U64(last))
	}
	return c[name]
}
