package main

import "fmt"

// Opcodes of conversions between four numbers of 32 and of 16 bits, from or to the lower
// half of a register; with bit 30 set, the upper half.
const (
	opFCVTN = 0x0e216800
	opFCVTL = 0x0e217800
	opSHLL  = 0x2e613800 // by 16 bits
	opSHRN  = 0x0f108400 // by 16 bits
	upper   = 1 << 30
)

func halves() []*routine {
	return []*routine{
		encode("encodeFP16", func(r *routine) {
			narrow, v := r.same(), r.value()
			r.next(v, "src")
			r.narrow("FCVTN", opFCVTN, narrow, v)
			r.store(narrow, "dst")
		}),
		decode("decodeFP16", "FCVTL", opFCVTL),
		encodeBF16(),
		decode("decodeBF16", "SHLL", opSHLL),
	}
}

func encode(name string, body func(r *routine)) *routine {
	r := define(name, "is "+name+"Generic.", lanes, parameter{"dst", uint16s}, parameter{"src", float32s})
	r.loop(func() { body(r) })
	return r
}

func decode(name, mnemonic string, opcode uint32) *routine {
	r := define(name, "is "+name+"Generic.", lanes, parameter{"dst", float32s}, parameter{"src", uint16s})
	r.loop(func() {
		narrow, v := r.same(), r.value()
		r.next(narrow, "src")
		r.word(fmt.Sprintf("%s V%d.4S, V%d.4H", mnemonic, v[0], narrow[0]), opcode, v[0], narrow[0], 0)
		r.word(fmt.Sprintf("%s2 V%d.4S, V%d.8H", mnemonic, v[1], narrow[0]), opcode|upper, v[1], narrow[0], 0)
		r.store(v, "dst")
	})
	return r
}

// narrow converts the two registers of v into the halves of one.
func (r *routine) narrow(mnemonic string, opcode uint32, narrow, v value) {
	r.word(fmt.Sprintf("%s V%d.4H, V%d.4S", mnemonic, narrow[0], v[0]), opcode, narrow[0], v[0], 0)
	r.word(fmt.Sprintf("%s2 V%d.8H, V%d.4S", mnemonic, narrow[0], v[1]), opcode|upper, narrow[0], v[1], 0)
}

// encodeBF16 adds just below half of the last place that stays, and one more where that
// place is odd; NaN, which does not equal itself, only becomes quiet.
func encodeBF16() *routine {
	r := define("encodeBF16", "is encodeBF16Generic.", lanes, parameter{"dst", uint16s}, parameter{"src", float32s})
	one, half, quiet := r.constant(1), r.constant(1<<15-1), r.constant(1<<22)
	r.loop(func() {
		narrow, v, rounded, number := r.same(), r.value(), r.value(), r.value()
		r.next(v, "src")
		for i := range v {
			r.emit("VUSHR $16, V%d.S4, V%d.S4", v[i], rounded[i])
		}
		r.native("VAND", "B16", one, rounded, rounded)
		r.native("VADD", "S4", half, rounded, rounded)
		r.native("VADD", "S4", v, rounded, rounded)
		r.equal(number, v, v)
		r.native("VORR", "B16", quiet, v, v)
		r.native("VBIT", "B16", number, rounded, v)
		r.narrow("SHRN", opSHRN, narrow, v)
		r.store(narrow, "dst")
	})
	return r
}
