package main

func vectors() []*routine {
	return []*routine{addition(), axpy(), scale(), maxAbs(), dot()}
}

func addition() *routine {
	r := define("add", "is addGeneric.", lanes, parametersOf("dst x", "")...)
	r.loop(func() {
		dst, x := r.value(), r.value()
		r.load(dst, "dst")
		r.next(x, "x")
		r.add(dst, dst, x)
		r.store(dst, "dst")
	})
	return r
}

func axpy() *routine {
	r := define("axpy", "is axpyGeneric.", lanes, parameter{"dst", float32s}, parameter{"a", float}, parameter{"x", float32s})
	a := r.scalar("a")
	r.loop(func() {
		dst, x := r.value(), r.value()
		r.load(dst, "dst")
		r.next(x, "x")
		r.mul(x, a, x)
		r.add(dst, dst, x)
		r.store(dst, "dst")
	})
	return r
}

func scale() *routine {
	r := define("scale", "is scaleGeneric.", lanes, parametersOf("dst", "a")...)
	a := r.scalar("a")
	r.loop(func() {
		dst := r.value()
		r.load(dst, "dst")
		r.mul(dst, dst, a)
		r.store(dst, "dst")
	})
	return r
}

// maxAbs keeps maxima of bit patterns and joins them at the end.
func maxAbs() *routine {
	r := define("maxAbs", "returns the bits of what maxAbsGeneric returns.", lanes, parametersOf("x", "")...)
	r.result = true
	signless, largest := r.constant(1<<31-1), r.value()
	r.native("VEOR", "B16", largest, largest, largest)
	r.loop(func() {
		x := r.value()
		r.next(x, "x")
		r.native("VAND", "B16", signless, x, x)
		r.greatest(largest, largest, x)
	})
	low, high := value{largest[0], largest[0]}, value{largest[1], largest[1]}
	r.word("UMAX of the two", opUMAX, low[0], low[0], high[0])
	r.word("UMAXV over the lanes", opUMAXV, low[0], low[0], 0)
	r.emit("VMOV V%d.S[0], R10", low[0])
	return r
}

// sumsOfDot is the number of sums that the twin keeps: element i belongs to sum i%32.
const sumsOfDot = 32

// dot takes all sums in one turn of its loop, eight elements at a time.
func dot() *routine {
	r := define("dot", "adds the products to the sums of dotGeneric.", sumsOfDot,
		append(parametersOf("x y", ""), parameter{"sums", pointer})...)
	var sums [sumsOfDot / lanes]value
	r.emit("MOVD R9, R11")
	for i := range sums {
		sums[i] = r.value()
		r.emit("VLD1.P %d(R11), %s", float32s.step, registersOf(sums[i], float32s))
	}
	r.loop(func() {
		for i, sum := range sums {
			x, y := r.value(), r.value()
			r.next(x, "x")
			r.next(y, "y")
			r.mul(x, x, y)
			r.add(sum, sum, x)
			if i < len(sums)-1 {
				r.emit("SUB $%d, R8, R8", lanes)
			}
		}
	})
	for _, sum := range sums {
		r.emit("VST1.P %s, %d(R9)", registersOf(sum, float32s), float32s.step)
	}
	return r
}
