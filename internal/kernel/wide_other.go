//go:build !amd64 || noasm

package kernel

// wide says that there is no wide version.
func wide(int) int { return 0 }

// The functions below take the place of the wide versions and are never reached.

const unreached = "kernel: there is no wide version"

func addAVX2(_, _ []float32)                                         { panic(unreached) }
func axpyAVX2(_ []float32, _ float32, _ []float32)                   { panic(unreached) }
func scaleAVX2(_ []float32, _ float32)                               { panic(unreached) }
func maxAbsAVX2(_ []float32) uint32                                  { panic(unreached) }
func dotAVX2(_, _ []float32, _ *[4]float32)                          { panic(unreached) }
func sgdAVX2(_, _ []float32, _, _ float32)                           { panic(unreached) }
func momentumAVX2(_, _, _ []float32, _, _, _ float32)                { panic(unreached) }
func nesterovAVX2(_, _, _ []float32, _, _, _ float32)                { panic(unreached) }
func adagradAVX2(_, _, _ []float32, _, _, _ float32)                 { panic(unreached) }
func adamAVX2(_, _, _, _ []float32, _, _, _, _, _, _, _, _ float32)  { panic(unreached) }
func adamWAVX2(_, _, _, _ []float32, _, _, _, _, _, _, _, _ float32) { panic(unreached) }
