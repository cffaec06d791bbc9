// Package accelerator lets ranks combine and exchange buffers that lie on GPUs and NPUs, by
// the collective libraries of their vendors: NCCL, RCCL, MCCL (Moore Threads), HCCL.
//
// # Terms
//
// A [Library] is a vendor's library and the runtime of its devices, found when the program
// runs. A [Device] is one thread of the operating system that makes all calls about one
// device. A [Buffer] is elements of one [Type] in [Memory] of a device, a [Host] memory that the
// device reaches by itself. A [Stream] is a queue of a device. A [Group] is one rank's end of
// a communicator; its methods are those of collective.Group, for buffers on devices.
// [Capabilities] are a value by which ranks can agree on what to use.
//
// # Smallest use
//
//	lib, err := nccl.Open(accelerator.Config{})
//	d, err := lib.Device(ctx, 0)
//	m, err := d.Alloc(ctx, 4<<20)
//	grad := m.Elements(accelerator.Float32)
//	g, err := d.Join(ctx, accelerator.GroupConfig{Rank: rank, Size: 8, Exchange: accelerator.Through(cpuGroup)})
//	err = g.AllReduce(ctx, grad, grad, collective.Average)
//	err = lib.Close()
//
// # Building
//
// Each vendor has a build tag, which needs cgo and Linux but no file of the vendor: nccl, rccl,
// musa, hccl. They go together in one program. Without its tag a vendor's libraries are not
// opened: ErrNotBuilt. The program finds the libraries by, in this order, Config, the variables
// NCCL_SO_PATH and CUDA_SO_PATH, RCCL_SO_PATH and HIP_SO_PATH, MCCL_SO_PATH and MUSART_SO_PATH,
// HCCL_SO_PATH and ACL_SO_PATH, what the system's loader finds, and where the vendors put
// them. A libmccl.so of MetaX, which has Moore Threads' names, is refused.
//
// # Order and failure
//
// Calls of a group are carried out in the order in which they were made, on its stream. Calls
// of different groups of one device are begun one after the other, in the order in which
// they were made, as the libraries demand: make them in the same order on all ranks. Nothing
// compares what ranks call; where they differ, some libraries report it and others hang
// until the context of the call ends.
//
// A call that fails, or whose context ends, ends the group on this rank: the communicator is
// aborted, which also ends what is stuck on the device, and all calls return the cause. Other
// ranks see an error of the library or run into their own time: all have to abort and to go
// on with [Group.Shrink] or [Device.Join]. A call that the library has refused because of its
// arguments leaves the group as it was.
//
// HCCL has no abort. Where ACL can empty a stream, that is used; else a call that is stuck
// stays on the device until the process ends, and Close says so (ErrHung). Its communicators are
// made by a call that waits for all ranks and cannot be stopped: when Join gives up, a thread
// stays behind until the library does.
//
// # Results
//
// Sums are made by the library, whose order depends on size and machine. Average is the
// library's: of floats as it sees fit, of integers truncated towards zero. Versions without an
// average, but with sums of scaled elements, make it of floats. HCCL has none: ask for
// Capabilities.Supports, and let the optimizer scale the sum. Operations that move elements
// move bytes, so they take every type with every version.
//
// # Concurrency, ownership, blocking
//
// All methods are safe from any goroutine. Buffers belong to a call until it returns, or its
// Handle is done. Calls block until the rank's part is complete, at most until their context
// ends or the group's Timeout has passed, and a moment more: if the vendor's library itself
// does not come back by then, ErrHung. While something is under way the thread of a device looks
// for its end, at first without pause, then up to a millisecond apart. Memory and streams are
// given back when nothing is under way on the device.
//
// # Errors
//
// [OpError] says which call failed on which rank and wraps the cause: [CallError] with the
// vendor's code, the end of the context, collective.ErrAborted or ErrClosed. A rank that the
// library declares lost is collective.ErrRankLost. What is wrong with arguments is
// collective.ErrArgument; what a library cannot do, [UnsupportedError].
//
// # Limits
//
// Up to 64 devices of NVIDIA in a process. Copies of slices of Go go by way of 1 MiB for each
// stream. A library stays in the process after Close, since some leave threads behind.
//
// # References
//
// NVIDIA, NCCL Documentation: Creating a Communicator, Group Calls, Fault Tolerance. AMD, RCCL
// Documentation. Huawei, CANN Community Edition: HCCL API Reference.
package accelerator
