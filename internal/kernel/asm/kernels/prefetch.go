package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// prefetch asks for each cache line once.
func prefetch() {
	const line = 64
	TEXT("prefetchWide", NOSPLIT, "func(address uintptr, bytes int)")
	Pragma("noescape")
	Doc("prefetchWide asks for the cache lines of so many bytes, at least one.")
	address, end := GP64(), GP64()
	Load(Param("address"), address)
	Load(Param("bytes"), end)
	ADDQ(address, end)
	ANDQ(I8(-line), address)
	Label("prefetch")
	PREFETCHT0(Mem{Base: address})
	ADDQ(I8(line), address)
	CMPQ(address, end)
	JCS(LabelRef("prefetch"))
	RET()
}
