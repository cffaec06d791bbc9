//go:build !amd64 || noasm

package kernel

// These say that there is no version beyond the wide one.

func widest(int) int { return 0 }
func fold(int) int   { return 0 }

// The functions below take the place of those versions and are never reached.

const unreached = "kernel: there is no such version"

func encodeBF16Widest([]uint16, []float32)           { panic(unreached) }
func crc32cWidest(uint32, []byte) uint32             { panic(unreached) }
func copyCRC32CWidest(uint32, []byte, []byte) uint32 { panic(unreached) }
