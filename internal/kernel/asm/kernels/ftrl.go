package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// ftrl computes the weight in all lanes and clears those where nothing is over l1.
func ftrl() {
	f := avx2.begin("ftrl", "func(w, g, z, n []float32, alpha, beta, l1, l2 float32)",
		"is ftrlGeneric.", float32s("w", "g", "z", "n")...)
	alpha, beta, l1, l2 := f.scalar("alpha"), f.scalar("beta"), f.scalar("l1"), f.scalar("l2")
	sign, zero := f.constant(1<<31), f.register()
	VXORPS(zero, zero, zero)
	f.loop("ftrl", 1, func(i int) {
		g, before := f.load("g", i), f.load("n", i)
		sum := add(before, mul(g, g))
		f.store(sum, "n", i)
		root := sqrt(sum)
		sigma := div(sub(root, sqrt(before)), alpha)
		linear := sub(add(f.load("z", i), g), mul(sigma, f.at("w", i)))
		f.store(linear, "z", i)
		over, weight, mask := f.register(), f.register(), f.register()
		VANDNPS(linear, sign, over) // the absolute value
		VMAXPS(sub(over, l1), zero, over)
		VANDNPS(sign, linear, weight) // the sign bit, if linear has none
		VORPS(over, weight, weight)
		weight = div(weight, add(div(add(beta, root), alpha), l2))
		VCMPPS(U8(4), zero, over, mask) // not equal, or NaN
		VANDPS(weight, mask, weight)
		f.store(weight, "w", i)
	})
	end()
}
