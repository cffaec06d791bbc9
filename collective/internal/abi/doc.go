// Package abi calls the collective libraries of the vendors and the runtimes of their
// devices: NCCL with CUDA's driver, RCCL with HIP, MCCL with MUSA, HCCL with ACL.
//
// # Terms
//
// The vendor's library holds communicators; the runtime, another library, holds devices,
// memory, streams and events. Both are looked for when a program runs, by the build tags nccl,
// rccl, musa and hccl with cgo on Linux. Without a vendor's tag [Load] returns ErrNotBuilt
// for it. No file of a vendor is needed to build: abi.h says what their functions look like,
// and shim.c gives those of all vendors one form, a request.
//
// # Smallest use
//
//	l, err := abi.Load(abi.NVIDIA, "", "")
//	n, code := l.DeviceCount()
//
// # Concurrency
//
// As the libraries: a communicator is used by one thread at a time, and which device is
// current is a property of the thread.
//
// # Errors
//
// Load returns typed errors. All others return the vendor's code, 0 for success.
//
// # References
//
// NVIDIA, NCCL Documentation and CUDA Driver API. AMD, RCCL and HIP Documentation. Huawei, CANN
// Community Edition, HCCL and AscendCL API Reference.
package abi
