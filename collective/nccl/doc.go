// Package nccl opens the collective libraries of the NCCL family: NCCL of NVIDIA, RCCL of AMD
// and MCCL of Moore Threads, which have the same functions.
//
// # Smallest use
//
//	lib, err := nccl.Open(accelerator.Config{})
//
// What it returns, terms, order, failure, errors and limits are in package accelerator. A
// program needs the tag nccl, rccl or musa, or several, and cgo on Linux; else the error wraps
// accelerator.ErrNotBuilt. On a host without the libraries it says what was tried.
//
// # Versions
//
// NCCL and RCCL from 2.14 on, where communicators can be made without blocking. Sums of float8
// need NCCL 2.24, RCCL 2.21.5, MCCL 2.28.9; bfloat16 and averages 2.10. NCCL 2.27 makes smaller
// groups of larger ones (accelerator.GroupConfig.Elastic), other libraries join anew.
//
// # Tests
//
// The tests build a library with gcc that behaves as the vendors' do, over memory of the
// host. On a machine with GPUs,
//
//	go test -tags nccl ./collective/nccl -run Real -v
//
// tests the real one, with a rank on each device.
//
// # References
//
// NVIDIA, NCCL Documentation. AMD, RCCL Documentation.
package nccl
