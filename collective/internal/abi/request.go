package abi

import (
	"runtime"
	"unsafe"
)

// Handle is a communicator, stream or event, or the address of memory, of a library.
type Handle uintptr

// what a request asks for, as in shim.h.
const (
	doDeviceCount int32 = iota + 1
	doSetDevice
	doReleaseDevice
	doAlloc
	doFree
	doHostAlloc
	doHostFree
	doCopyIn
	doCopyOut
	doCopyOn
	doStreamCreate
	doStreamDestroy
	doStreamAbort
	doEventCreate
	doEventRecord
	doEventQuery
	doEventDestroy

	doVersion
	doUniqueID
	doInit
	doAsyncError
	doFinalize
	doDestroy
	doAbort
	doRevoke
	doShrink
	doPremulSum
	doOpDestroy
	doGroupStart
	doGroupEnd
	doAllReduce
	doReduceScatter
	doAllGather
	doBroadcast
	doReduce
	doAllToAll
	doSend
	doRecv
	doEnd
)

// request is shim_request.
type request struct {
	what, value, n, rank, device, kind, op, _ int32
	count                                     uint64
	a, b, comm, stream, out                   Handle
}

// Optional says which functions a library has that not all have.
type Optional int32

// The functions, as in shim.h.
const (
	Finalize Optional = 1 << iota
	Shrink
	Revoke
	PremulSum
	AllToAll
	StreamAbort
	GroupCalls
)

// DeviceCount initializes the runtime and counts the devices that the process may use.
func (l *Library) DeviceCount() (int, int) {
	r := request{what: doDeviceCount}
	code := l.call(&r)
	return int(r.value), code
}

// SetDevice makes a device the current one of this thread.
func (l *Library) SetDevice(device int) int {
	return l.call(&request{what: doSetDevice, device: int32(device)})
}

// ReleaseDevice gives up what SetDevice has taken for the process.
func (l *Library) ReleaseDevice(device int) int {
	return l.call(&request{what: doReleaseDevice, device: int32(device)})
}

// Alloc allocates memory of the current device.
func (l *Library) Alloc(bytes int) (Handle, int) { return l.make(doAlloc, bytes) }

// Free gives memory of a device back.
func (l *Library) Free(memory Handle) int { return l.call(&request{what: doFree, a: memory}) }

// HostAlloc allocates memory of the host that devices copy from and to while the program
// goes on.
func (l *Library) HostAlloc(bytes int) (Handle, int) { return l.make(doHostAlloc, bytes) }

// HostFree gives memory of the host back.
func (l *Library) HostFree(memory Handle) int { return l.call(&request{what: doHostFree, a: memory}) }

// CopyIn enqueues a copy from HostAlloc's memory to a device.
func (l *Library) CopyIn(to, from Handle, bytes int, stream Handle) int {
	return l.call(&request{what: doCopyIn, a: to, b: from, count: uint64(bytes), stream: stream})
}

// CopyOut enqueues a copy from a device to HostAlloc's memory.
func (l *Library) CopyOut(to, from Handle, bytes int, stream Handle) int {
	return l.call(&request{what: doCopyOut, a: to, b: from, count: uint64(bytes), stream: stream})
}

// CopyOn enqueues a copy on a device.
func (l *Library) CopyOn(to, from Handle, bytes int, stream Handle) int {
	return l.call(&request{what: doCopyOn, a: to, b: from, count: uint64(bytes), stream: stream})
}

// StreamCreate makes a stream of the current device.
func (l *Library) StreamCreate() (Handle, int) { return l.make(doStreamCreate, 0) }

// StreamDestroy ends a stream.
func (l *Library) StreamDestroy(stream Handle) int {
	return l.call(&request{what: doStreamDestroy, stream: stream})
}

// StreamAbort drops what is in a stream; see StreamAbort of Optional.
func (l *Library) StreamAbort(stream Handle) int {
	return l.call(&request{what: doStreamAbort, stream: stream})
}

// EventCreate makes an event of the current device.
func (l *Library) EventCreate() (Handle, int) { return l.make(doEventCreate, 0) }

// EventRecord enqueues an event: it happens when all that is before it has ended.
func (l *Library) EventRecord(event, stream Handle) int {
	return l.call(&request{what: doEventRecord, a: event, stream: stream})
}

// EventQuery reports whether an event has happened.
func (l *Library) EventQuery(event Handle) (bool, int) {
	r := request{what: doEventQuery, a: event}
	code := l.call(&r)
	return r.value == 1, code
}

// EventDestroy ends an event.
func (l *Library) EventDestroy(event Handle) int {
	return l.call(&request{what: doEventDestroy, a: event})
}

func (l *Library) make(what int32, bytes int) (Handle, int) {
	r := request{what: what, count: uint64(bytes)}
	code := l.call(&r)
	return r.out, code
}

// VersionCode returns the number by which the library states its version; for Ascend that
// of ACL, 0 where it states none.
func (l *Library) VersionCode() (int, int) {
	r := request{what: doVersion}
	code := l.call(&r)
	return int(r.value), code
}

// UniqueID fills the id of a communicator to come, IDBytes long.
func (l *Library) UniqueID(id []byte) int {
	var pins runtime.Pinner
	defer pins.Unpin()
	return l.call(&request{what: doUniqueID, a: pinned(&pins, &id[0])})
}

// Init makes a rank's communicator: of the family at once, while the library goes on with
// it in the background (InProgress), of Ascend when all ranks are there.
func (l *Library) Init(id []byte, ranks, rank, version int) (Handle, int) {
	var pins runtime.Pinner
	defer pins.Unpin()
	r := request{what: doInit, a: pinned(&pins, &id[0]), n: int32(ranks), rank: int32(rank), value: int32(version)}
	code := l.call(&r)
	return r.out, code
}

// AsyncError returns the state of a communicator, and the code of asking for it.
func (l *Library) AsyncError(comm Handle) (state, code int) {
	r := request{what: doAsyncError, comm: comm}
	code = l.call(&r)
	return int(r.value), code
}

// Finalize begins the orderly end of a communicator, in the background.
func (l *Library) Finalize(comm Handle) int { return l.of(doFinalize, comm) }

// Destroy frees a communicator.
func (l *Library) Destroy(comm Handle) int { return l.of(doDestroy, comm) }

// Abort frees a communicator and ends what it is doing. Ascend has no such function.
func (l *Library) Abort(comm Handle) int { return l.of(doAbort, comm) }

// Revoke ends what a communicator is doing.
func (l *Library) Revoke(comm Handle) int { return l.of(doRevoke, comm) }

func (l *Library) of(what int32, comm Handle) int { return l.call(&request{what: what, comm: comm}) }

// Shrink ends what a communicator is doing and makes one without some ranks, in the
// background. The library writes its handle into the child at some time before the state of
// the communicator is success.
func (l *Library) Shrink(comm Handle, to *Child, version int) int {
	return l.call(&request{
		what: doShrink, comm: comm, a: Handle(to.excluded), n: int32(to.n), b: Handle(to.room), value: int32(version),
	})
}

// PremulSum makes an operation that multiplies by the scalar, an element of the type,
// before it adds.
func (l *Library) PremulSum(comm Handle, scalar []byte, kind int) (op, code int) {
	var pins runtime.Pinner
	defer pins.Unpin()
	r := request{what: doPremulSum, comm: comm, a: pinned(&pins, &scalar[0]), kind: int32(kind)}
	code = l.call(&r)
	return int(r.value), code
}

// OpDestroy ends an operation of PremulSum.
func (l *Library) OpDestroy(comm Handle, op int) int {
	return l.call(&request{what: doOpDestroy, comm: comm, op: int32(op)})
}

// GroupStart begins calls of this thread that are one.
func (l *Library) GroupStart() int { return l.call(&request{what: doGroupStart}) }

// GroupEnd enqueues them.
func (l *Library) GroupEnd() int { return l.call(&request{what: doGroupEnd}) }

// Args are the arguments of a collective call. Type and Op are the vendor's numbers.
type Args struct {
	Src, Dst     Handle
	Count        int
	Type, Op     int
	Root         int // or the peer
	Comm, Stream Handle
}

// AllReduce enqueues an all-reduce.
func (l *Library) AllReduce(a Args) int { return l.collective(doAllReduce, a) }

// ReduceScatter enqueues a reduce-scatter of Count elements to each rank.
func (l *Library) ReduceScatter(a Args) int { return l.collective(doReduceScatter, a) }

// AllGather enqueues an all-gather of Count elements of each rank.
func (l *Library) AllGather(a Args) int { return l.collective(doAllGather, a) }

// Broadcast enqueues a broadcast; of Ascend from and to Dst.
func (l *Library) Broadcast(a Args) int { return l.collective(doBroadcast, a) }

// Reduce enqueues a reduction to the root.
func (l *Library) Reduce(a Args) int { return l.collective(doReduce, a) }

// AllToAll enqueues an exchange of Count elements for each rank.
func (l *Library) AllToAll(a Args) int { return l.collective(doAllToAll, a) }

// Send enqueues a message from Src.
func (l *Library) Send(a Args) int { return l.collective(doSend, a) }

// Recv enqueues the receipt of one into Dst.
func (l *Library) Recv(a Args) int { return l.collective(doRecv, a) }

func (l *Library) collective(what int32, a Args) int {
	return l.call(&request{
		what: what, a: a.Src, b: a.Dst, count: uint64(a.Count), kind: int32(a.Type), op: int32(a.Op), rank: int32(a.Root),
		comm: a.Comm, stream: a.Stream,
	})
}

// pinned returns the address of Go memory that the library reads or writes until the
// pinner lets it go.
func pinned[T any](pins *runtime.Pinner, p *T) Handle {
	pins.Pin(p)
	return Handle(unsafe.Pointer(p))
}
