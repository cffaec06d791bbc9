//go:build !noasm

package cpu

func detect() Features {
	const (
		saved  = 1<<27 | 1<<28 // leaf 1, ECX: OSXSAVE, AVX
		sse42  = 1 << 20
		f16c   = 1 << 29
		avx2   = 1 << 5 // leaf 7, EBX
		avx512 = 1<<16 | 1<<17 | 1<<30 | 1<<31
		clmul  = 1 << 10 // leaf 7, ECX

		// XCR0
		registers256 = 1<<1 | 1<<2                       // XMM, YMM
		registers512 = registers256 | 1<<5 | 1<<6 | 1<<7 // masks, upper halves, ZMM16 to ZMM31
	)
	has := func(register uint32, bits uint32) bool { return register&bits == bits }
	if last, _, _, _ := cpuid(0, 0); last < 7 {
		return Features{}
	}
	_, _, one, _ := cpuid(1, 0)
	if !has(one, saved) || !has(xgetbv(), registers256) {
		return Features{}
	}
	_, ebx, ecx, _ := cpuid(7, 0)
	var f Features
	f.AVX2 = has(one, sse42) && has(ebx, avx2)
	f.F16C = f.AVX2 && has(one, f16c)
	f.AVX512 = f.AVX2 && has(ebx, avx512) && has(xgetbv(), registers512)
	f.Multiply = f.AVX512 && has(ecx, clmul)
	return f
}
