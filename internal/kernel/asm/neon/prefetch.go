package main

// The routine that asks for each cache line once, and its declaration. It has no values and
// no loop over elements.
const (
	prefetchAssembly = `
// func prefetchWide(address uintptr, bytes int)
TEXT ·prefetchWide(SB), NOSPLIT, $0-16
	MOVD address+0(FP), R0
	MOVD bytes+8(FP), R1
	ADD R0, R1, R1
	AND $~63, R0, R0

prefetch:
	PRFM (R0), PLDL1KEEP
	ADD $64, R0, R0
	CMP R1, R0
	BLO prefetch
	RET
`
	prefetchDeclaration = `
// prefetchWide asks for the cache lines of so many bytes, at least one.
//
//go:noescape
func prefetchWide(address uintptr, bytes int)
`
)
