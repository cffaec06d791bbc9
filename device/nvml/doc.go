// Package nvml reads NVIDIA devices from the vendor's library, libnvidia-ml.so.1.
//
// It needs the build tag nvml and cgo; without them Open returns an error that wraps
// device.ErrNotBuilt and nothing else is built. The library is looked for when the program
// runs, so a program built with the tag starts on hosts without it.
//
// # Smallest use
//
//	gpus, err := nvml.Open(nvml.Config{})
//	if err != nil {
//		return err // ErrLibraryNotFound on a host without the driver
//	}
//	defer gpus.Close()
//	devices, err := gpus.Devices(ctx)
//
// # Concurrency and limits
//
// All methods may be called from any goroutine; the library is asked by one at a time. A
// driver that hangs keeps the goroutine that asks it, whatever its context says, as long
// as it hangs. A process must not open two different files of the library: its functions
// are bound for good at their first call.
//
// # Errors
//
// ErrLibraryNotFound and *SymbolError say that the library or a function that cannot be done
// without is missing, *CallError what the driver refused. Functions that an older driver
// lacks, and values that it does not support, are unknown figures; a device that has fallen
// off the bus is listed as gone. Before each function is called it is looked up, because
// calling one that is missing would end the process.
//
// For the same reason a program with the tag must be linked lazily: on systems whose
// linker binds at once by default, build with -ldflags=-extldflags=-Wl,-z,lazy, and do not set
// LD_BIND_NOW; else the process ends before main. The compiler warns of functions that the
// vendor has deprecated; CGO_CFLAGS=-Wno-deprecated-declarations keeps it quiet.
//
// # References
//
// NVIDIA, NVML API Reference Guide. PCI Express Base Specification 3.0, section 4.2.
package nvml
