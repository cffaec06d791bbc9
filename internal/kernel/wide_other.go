//go:build (!amd64 && !arm64) || noasm

package kernel

// These say that there is no wide version.

func wide(int) int     { return 0 }
func wideHalf(int) int { return 0 }

// The functions below take the place of the wide versions and are never reached.

func addWide(_, _ []float32)                                              { panic(unreached) }
func axpyWide(_ []float32, _ float32, _ []float32)                        { panic(unreached) }
func scaleWide(_ []float32, _ float32)                                    { panic(unreached) }
func maxAbsWide(_ []float32) uint32                                       { panic(unreached) }
func dotWide(_, _ []float32, _ *[numSums]float32)                         { panic(unreached) }
func sgdWide(_, _ []float32, _, _ float32)                                { panic(unreached) }
func momentumWide(_, _, _ []float32, _, _, _ float32)                     { panic(unreached) }
func nesterovWide(_, _, _ []float32, _, _, _ float32)                     { panic(unreached) }
func adagradWide(_, _, _ []float32, _, _, _ float32)                      { panic(unreached) }
func adamWide(_, _, _, _ []float32, _, _, _, _, _, _, _, _ float32)       { panic(unreached) }
func adamWWide(_, _, _, _ []float32, _, _, _, _, _, _, _, _ float32)      { panic(unreached) }
func prefetchWide(uintptr, int)                                           { panic(unreached) }
func amsGradWide(_, _, _, _, _ []float32, _, _, _, _, _, _, _, _ float32) { panic(unreached) }
func ftrlWide(_, _, _, _ []float32, _, _, _, _ float32)                   { panic(unreached) }
func encodeFP16Wide([]uint16, []float32)                                  { panic(unreached) }
func decodeFP16Wide([]float32, []uint16)                                  { panic(unreached) }
func encodeBF16Wide([]uint16, []float32)                                  { panic(unreached) }
func decodeBF16Wide([]float32, []uint16)                                  { panic(unreached) }
