//go:build (nccl || rccl || musa || hccl) && cgo && linux

package abi

// #cgo CFLAGS: -Wall -Wextra
// #cgo nccl CFLAGS: -DWITH_NCCL
// #cgo rccl CFLAGS: -DWITH_RCCL
// #cgo musa CFLAGS: -DWITH_MUSA
// #cgo hccl CFLAGS: -DWITH_HCCL
// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// #include "abi.h"
// #include "shim.h"
//
// static void *address(uintptr_t memory) { return (void *)memory; }
// static uintptr_t child(uintptr_t *room) { return __atomic_load_n(room, __ATOMIC_ACQUIRE); }
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

// The numbers of request.go and library.go are those of the headers, or this does not
// compile.
var (
	_ [doEnd]struct{}                   = [C.DO_END]struct{}{}
	_ [doVersion]struct{}               = [C.DO_VERSION]struct{}{}
	_ [doAllReduce]struct{}             = [C.DO_ALL_REDUCE]struct{}{}
	_ [GroupCalls]struct{}              = [C.HAS_GROUP]struct{}{}
	_ [StreamAbort]struct{}             = [C.HAS_STREAM_ABORT]struct{}{}
	_ [Ascend]struct{}                  = [C.VENDOR_ASCEND]struct{}{}
	_ [familyIDBytes]struct{}           = [C.CCL_ID_BYTES]struct{}{}
	_ [ascendIDBytes]struct{}           = [C.HCCL_ID_BYTES]struct{}{}
	_ [unsafe.Sizeof(request{})]byte    = [C.sizeof_shim_request]byte{}
	_ [unsafe.Offsetof(request{}.a)]int = [unsafe.Offsetof(C.shim_request{}.a)]int{}
)

// Library is the two libraries of a vendor, loaded.
type Library struct {
	shim         *C.shim_library
	ccl, runtime unsafe.Pointer
}

// Load loads the libraries of a vendor, from the paths or, where they are empty, from where
// the environment, the system and the vendor have them. Errors wrap ErrNotBuilt, ErrNotFound,
// ErrSymbol or ErrForeign.
func Load(v Vendor, library, runtime string) (*Library, error) {
	if C.shim_built(C.int(v)) == 0 {
		return nil, fmt.Errorf("%w: needs -tags %s", ErrNotBuilt, v.Tag())
	}
	accept := func(unsafe.Pointer) error { return nil }
	l := &Library{}
	var err error
	var runtimePath, path string
	if l.runtime, runtimePath, err = open(&searches[v].runtime, runtime, accept); err != nil {
		return nil, err
	}
	if v == MooreThreads {
		accept = notMetaX
	}
	if l.ccl, path, err = open(&searches[v].library, library, accept); err != nil {
		return nil, closing(err, l)
	}
	var missing C.shim_missing
	if l.shim = C.shim_load(C.int(v), l.ccl, l.runtime, &missing); l.shim == nil {
		if missing.of_runtime != 0 {
			path = runtimePath
		}
		return nil, closing(&SymbolError{C.GoString(&missing.name[0]), path, int(missing.version)}, l)
	}
	return l, nil
}

// notMetaX refuses the library of MetaX, which has the file and function names of Moore
// Threads' and other devices.
func notMetaX(handle unsafe.Pointer) error {
	if C.shim_is_metax(handle) != 0 {
		return fmt.Errorf("%w: MetaX", ErrForeign)
	}
	return nil
}

// open opens the first candidate that can be opened and is accepted.
func open(n *names, path string, accept func(unsafe.Pointer) error) (unsafe.Pointer, string, error) {
	var tried NotFoundError
	for _, candidate := range n.candidates(path, os.Getenv) {
		name := C.CString(candidate)
		handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL|C.RTLD_NODELETE)
		C.free(unsafe.Pointer(name))
		if handle == nil {
			tried.Tried = append(tried.Tried, C.GoString(C.dlerror()))
			continue
		}
		err := accept(handle)
		if err == nil {
			return handle, candidate, nil
		}
		C.dlclose(handle)
		tried.foreign = err
		tried.Tried = append(tried.Tried, candidate+": "+err.Error())
	}
	return nil, "", &tried
}

func closing(err error, l *Library) error {
	_ = l.Close() // what went wrong before is the news
	return err
}

// Close gives the libraries up. All that came from them must have been given back. They
// stay in the process, since some leave threads behind.
func (l *Library) Close() error {
	if l.shim != nil {
		C.shim_unload(l.shim)
		l.shim = nil
	}
	for _, handle := range []*unsafe.Pointer{&l.ccl, &l.runtime} {
		if *handle != nil && C.dlclose(*handle) != 0 {
			return fmt.Errorf("dlclose: %s", C.GoString(C.dlerror()))
		}
		*handle = nil
	}
	return nil
}

// Has returns the optional functions that the library has.
func (l *Library) Has() Optional { return Optional(C.shim_has(l.shim)) }

func (l *Library) call(r *request) int {
	return int(C.shim_call(l.shim, (*C.shim_request)(unsafe.Pointer(r))))
}

// Text returns what a code of the runtime or of the communicators means, and what else is
// known of the communicator, if it is not zero.
func (l *Library) Text(ofRuntime bool, code int, comm Handle) string {
	const room = 512
	text := (*C.char)(C.malloc(room))
	defer C.free(unsafe.Pointer(text))
	flag := C.int(0)
	if ofRuntime {
		flag = 1
	}
	C.shim_text(l.shim, flag, C.int(code), C.uintptr_t(comm), text, room)
	return C.GoString(text)
}

// Host views memory of HostAlloc, until it is given back.
func (l *Library) Host(memory Handle, bytes int) []byte {
	return unsafe.Slice((*byte)(C.address(C.uintptr_t(memory))), bytes)
}

// Child is memory that a library uses in the background when it makes a communicator of
// another: the place of the handle, and the ranks that are left out.
type Child struct {
	room, excluded unsafe.Pointer
	n              int
}

// NewChild allocates it.
func NewChild(excluded []int32) *Child {
	const size = unsafe.Sizeof(int32(0))
	c := &Child{room: C.calloc(1, C.sizeof_uintptr_t), excluded: C.calloc(C.size_t(len(excluded)+1), C.size_t(size)), n: len(excluded)}
	copy(unsafe.Slice((*int32)(c.excluded), len(excluded)), excluded)
	return c
}

// Handle returns what the library has written, 0 before.
func (c *Child) Handle() Handle { return Handle(C.child((*C.uintptr_t)(c.room))) }

// Close frees the memory, when the library uses it no more.
func (c *Child) Close() {
	C.free(c.room)
	C.free(c.excluded)
	c.room, c.excluded = nil, nil
}
