package main

import (
	"bytes"
	"fmt"
	"strings"
)

// lanes is the number of float32 that one turn of a loop takes: two registers of four.
const lanes = 8

// value is what one turn works on: eight float32 in two registers, which follow each other
// unless all lanes are the same, when one register is enough.
type value [2]int

// kind is the type of a parameter.
type kind struct {
	text string
	size int // bytes on the stack
	step int // bytes that one turn takes of a slice, zero if it is none
}

var (
	float32s = kind{"[]float32", 24, 4 * lanes}
	uint16s  = kind{"[]uint16", 24, 2 * lanes}
	float    = kind{"float32", 4, 0}
	pointer  = kind{"*[32]float32", 8, 0}
)

type parameter struct {
	name string
	kind
}

// routine is one function under construction. Slices stand in R0 and the registers after
// it, the number of elements left in R8, a pointer in R9. Values take V registers from 0
// on.
type routine struct {
	name       string
	doc        []string
	parameters []parameter
	result     bool // a uint32, taken from R10
	code       bytes.Buffer
	registers  int
	labels     int
}

func (r *routine) emit(format string, arguments ...any) {
	fmt.Fprintf(&r.code, "\t"+format+"\n", arguments...)
}

func (r *routine) label(name string) { fmt.Fprintf(&r.code, "\n%s:\n", name) }

// word emits an instruction that Go's assembler does not know, with the destination in
// bits 0 to 4 and sources from bits 5 and 16 on; text says what it is.
func (r *routine) word(text string, opcode uint32, destination, first, second int) {
	r.emit("WORD $%#08x // %s", opcode|uint32(second)<<16|uint32(first)<<5|uint32(destination), text)
}

// value takes two registers, and same one.
func (r *routine) value() value {
	first := r.take(2)
	return value{first, first + 1}
}

func (r *routine) same() value {
	register := r.take(1)
	return value{register, register}
}

func (r *routine) take(count int) int {
	first := r.registers
	r.registers += count
	if r.registers > 32 {
		panic(r.name + ": more than 32 registers")
	}
	return first
}

// Opcodes of operations on four float32 or uint32, from the Arm Architecture Reference
// Manual for A-profile, section C7.2.
const (
	opFADD  = 0x4e20d400
	opFSUB  = 0x4ea0d400
	opFMUL  = 0x6e20dc00
	opFDIV  = 0x6e20fc00
	opFSQRT = 0x6ea1f800
	opFCMEQ = 0x4e20e400
	opFCMGT = 0x6ea0e400
	opFMAX  = 0x4e20f400
	opUMAX  = 0x6ea06400
	opUMAXV = 0x6eb0a800
)

// three emits d = a op b for both registers.
func (r *routine) three(mnemonic string, opcode uint32, d, a, b value) {
	for i := range d {
		text := fmt.Sprintf("%s V%d.4S, V%d.4S, V%d.4S", mnemonic, d[i], a[i], b[i])
		r.word(text, opcode, d[i], a[i], b[i])
	}
}

func (r *routine) add(d, a, b value)      { r.three("FADD", opFADD, d, a, b) }
func (r *routine) sub(d, a, b value)      { r.three("FSUB", opFSUB, d, a, b) }
func (r *routine) mul(d, a, b value)      { r.three("FMUL", opFMUL, d, a, b) }
func (r *routine) div(d, a, b value)      { r.three("FDIV", opFDIV, d, a, b) }
func (r *routine) equal(d, a, b value)    { r.three("FCMEQ", opFCMEQ, d, a, b) }
func (r *routine) greatest(d, a, b value) { r.three("UMAX", opUMAX, d, a, b) }

func (r *routine) sqrt(d, a value) {
	for i := range d {
		r.word(fmt.Sprintf("FSQRT V%d.4S, V%d.4S", d[i], a[i]), opFSQRT, d[i], a[i], 0)
	}
}

// native emits an operation on both registers that Go's assembler knows, in its order:
// sources first.
func (r *routine) native(mnemonic, arrangement string, b, a, d value) {
	for i := range d {
		r.emit("%s V%d.%s, V%d.%s, V%d.%s", mnemonic, b[i], arrangement, a[i], arrangement, d[i], arrangement)
	}
}

// constant fills all lanes with bits.
func (r *routine) constant(bits uint32) value {
	v := r.same()
	r.emit("MOVW $%#08x, R10", bits)
	r.emit("VDUP R10, V%d.S4", v[0])
	return v
}

// scalar fills all lanes with a parameter.
func (r *routine) scalar(name string) value {
	v := r.same()
	r.emit("FMOVS %s+%d(FP), F%d", name, r.offset(name), v[0])
	r.emit("VDUP V%d.S[0], V%d.S4", v[0], v[0])
	return v
}

// offset is where a parameter lies.
func (r *routine) offset(name string) int {
	at := 0
	for _, p := range r.parameters {
		if p.size >= 8 {
			at = (at + 7) &^ 7
		}
		if p.name == name {
			return at
		}
		at += p.size
	}
	panic(r.name + ": no parameter " + name)
}

// slice is the general register of a slice and its kind.
func (r *routine) slice(name string) (register int, k kind) {
	for _, p := range r.parameters {
		if p.step == 0 {
			continue
		}
		if p.name == name {
			return register, p.kind
		}
		register++
	}
	panic(r.name + ": no slice " + name)
}

// registersOf names the registers of a value that a slice's elements of one turn fill.
func registersOf(v value, k kind) string {
	if k.step == 16 {
		return fmt.Sprintf("[V%d.H8]", v[0])
	}
	return fmt.Sprintf("[V%d.S4, V%d.S4]", v[0], v[1])
}

// load reads the elements of a slice; next also moves on to the next turn's.
func (r *routine) load(v value, slice string) {
	register, k := r.slice(slice)
	r.emit("VLD1 (R%d), %s", register, registersOf(v, k))
}

func (r *routine) next(v value, slice string) {
	register, k := r.slice(slice)
	r.emit("VLD1.P %d(R%d), %s", k.step, register, registersOf(v, k))
}

// store writes the elements of a slice and moves on.
func (r *routine) store(v value, slice string) {
	register, k := r.slice(slice)
	r.emit("VST1.P %s, %d(R%d)", registersOf(v, k), k.step, register)
}

// loop emits body for every eight elements. Registers that body takes are free after it.
func (r *routine) loop(body func()) {
	r.labels++
	begin, done := fmt.Sprintf("loop%d", r.labels), fmt.Sprintf("done%d", r.labels)
	r.label(begin)
	r.emit("CBZ R8, %s", done)
	before := r.registers
	body()
	r.registers = before
	r.emit("SUB $%d, R8, R8", lanes)
	r.emit("B %s", begin)
	r.label(done)
}

// signature is the function in Go.
func (r *routine) signature() string {
	var list []string
	for _, p := range r.parameters {
		list = append(list, p.name+" "+p.text)
	}
	result := ""
	if r.result {
		result = " uint32"
	}
	return fmt.Sprintf("func %s(%s)%s", r.name, strings.Join(list, ", "), result)
}

// assembly is the whole function as text.
func (r *routine) assembly() string {
	last := r.parameters[len(r.parameters)-1]
	size := r.offset(last.name) + last.size
	var text strings.Builder
	result := (size + 7) &^ 7
	if r.result {
		size = result + 4
	}
	fmt.Fprintf(&text, "\n// %s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", r.signature(), r.name, size)
	for _, p := range r.parameters {
		if p.step != 0 {
			register, _ := r.slice(p.name)
			fmt.Fprintf(&text, "\tMOVD %s_base+%d(FP), R%d\n", p.name, r.offset(p.name), register)
		}
		if p.kind == pointer {
			fmt.Fprintf(&text, "\tMOVD %s+%d(FP), R9\n", p.name, r.offset(p.name))
		}
	}
	fmt.Fprintf(&text, "\tMOVD %s_len+8(FP), R8\n", r.parameters[0].name)
	text.Write(r.code.Bytes())
	if r.result {
		fmt.Fprintf(&text, "\tMOVW R10, ret+%d(FP)\n", result)
	}
	text.WriteString("\tRET\n")
	return text.String()
}
