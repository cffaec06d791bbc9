package cpu

import "os"

// Variable is the environment variable that is looked at. With Generic as its value every
// feature is off, with AVX2 those are that go beyond AVX2.
const (
	Variable = "ELASTICPS_KERNEL"
	Generic  = "generic"
	AVX2     = "avx2"
)

// Features are the groups of instructions that kernels may use. The zero value has none.
type Features struct {
	// AVX2 has AVX, AVX2 and SSE4.2.
	AVX2 bool
	// F16C converts between float16 and float32. It comes with AVX2 only.
	F16C bool
	// AVX512 has the subsets F, BW, DQ and VL. It comes with AVX2 only.
	AVX512 bool
	// Multiply has the carry-less multiplication of 512-bit registers (VPCLMULQDQ). It
	// comes with AVX512 only.
	Multiply bool
	// NEON has the vectors of arm64, which all of its processors have.
	NEON bool
}

// Detect returns what kernels may use. It reads the environment and the processor at
// each call.
func Detect() Features {
	switch os.Getenv(Variable) {
	case Generic:
		return Features{}
	case AVX2:
		f := detect()
		f.AVX512, f.Multiply = false, false
		return f
	}
	return detect()
}
