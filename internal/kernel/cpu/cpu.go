package cpu

import "os"

// Variable is the environment variable that is looked at, and Generic the value of it
// that turns every feature off.
const (
	Variable = "ELASTICPS_KERNEL"
	Generic  = "generic"
)

// AVX2 reports whether kernels may use AVX2 instructions. It reads the environment and
// the processor at each call.
func AVX2() bool {
	return os.Getenv(Variable) != Generic && hasAVX2()
}
