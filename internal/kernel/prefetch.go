package kernel

import "unsafe"

// Prefetch asks the processor to bring x into its cache, and does not wait. It pays when
// the places of many slices that are far apart are known before they are read: the
// processor waits for all of them together. It reads nothing and has no other effect;
// without assembly it has none.
func Prefetch[T any](x []T) {
	if len(x) == 0 || wide(8) == 0 { // no assembly
		return
	}
	prefetchWide(uintptr(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}
