//go:build !amd64 || noasm

package kernel

// These say that there is no version beyond the wide one, and none for 8 bits.

func widest(int) int    { return 0 }
func fold(int) int      { return 0 }
func wideGroup(int) int { return 0 }
func widePair(int) int  { return 0 }

// The functions below take the place of those versions and are never reached.

const unreached = "kernel: there is no such version"

func encodeBF16Widest([]uint16, []float32)           { panic(unreached) }
func crc32cWidest(uint32, []byte) uint32             { panic(unreached) }
func copyCRC32CWidest(uint32, []byte, []byte) uint32 { panic(unreached) }

func encodeE4M3Wide([]byte, []float32, float32, uint32, uint32) { panic(unreached) }
func encodeE5M2Wide([]byte, []float32, float32, uint32, uint32) { panic(unreached) }
func decodeE4M3Wide([]float32, []byte, float32)                 { panic(unreached) }
func decodeE5M2Wide([]float32, []byte, float32)                 { panic(unreached) }
