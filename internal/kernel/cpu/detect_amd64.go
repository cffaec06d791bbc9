//go:build !noasm

package cpu

func hasAVX2() bool {
	const (
		saved     = 1<<27 | 1<<28 // leaf 1, ECX: OSXSAVE, AVX
		registers = 1<<1 | 1<<2   // XCR0: XMM and YMM
		avx2      = 1 << 5        // leaf 7, EBX
	)
	if last, _, _, _ := cpuid(0, 0); last < 7 {
		return false
	}
	if _, _, ecx, _ := cpuid(1, 0); ecx&saved != saved {
		return false
	}
	if xgetbv()&registers != registers {
		return false
	}
	_, ebx, _, _ := cpuid(7, 0)
	return ebx&avx2 != 0
}
