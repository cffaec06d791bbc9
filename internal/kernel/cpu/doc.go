// Package cpu says which of the versions of a kernel this process is to use.
//
// # Terms
//
// A feature counts as present when the processor has the instructions (CPUID) and the
// operating system saves their registers (OSXSAVE and extended control register 0).
//
// # Smallest use
//
//	if cpu.Detect().AVX2 { ... }
//
// # Switch
//
// With ELASTICPS_KERNEL=generic in the environment no feature is reported, and the
// pure-Go twins run; with ELASTICPS_KERNEL=avx2 nothing beyond AVX2 and F16C is. Any
// other value, and none, leave the choice to the machine. The build tag noasm does what
// generic does, at build time.
//
// # Concurrency, errors
//
// Functions keep no state, may run at the same time and do not fail. They are slow,
// a virtual machine may trap CPUID: callers ask once and keep the answer.
//
// # References
//
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section
// 14.3, detection of AVX, section 14.7.1, detection of AVX2, and section 15.2,
// detection of AVX-512.
package cpu
