// Package sysfs reads devices from the files of the Linux kernel: AMD devices from /sys/class/drm
// and /sys/class/kfd, and the processors of the host from /proc. It needs no tool and no
// library.
//
// # Terms
//
// Root is the folder that stands for "/": the root of the host where that is mounted
// elsewhere, as in a container, or a tree of a test.
//
// # Smallest use
//
//	gpus, err := sysfs.AMD(sysfs.Config{})
//	if err != nil {
//		return err
//	}
//	devices, err := gpus.Devices(ctx)
//
// # Concurrency and limits
//
// All methods may be called from any goroutine. At most 64 KiB of a file are read (1 MiB of
// cpuinfo), at most 1,024 devices. Reading does not block but for the driver, which may hang
// in a file of a broken device.
//
// # Errors
//
// A value whose file is not there, or that the driver refuses to read, is unknown: the
// kernel has other files for each product, and a device may go while it is read. A
// *device.TextError says which file has a text that is not understood, and where. A missing
// folder of the class is an error that wraps fs.ErrNotExist.
//
// # References
//
// Linux kernel, Documentation/gpu/amdgpu (driver-misc, thermal, ras) and drivers/gpu/drm/amd/amdkfd,
// kfd_topology.c; proc(5).
package sysfs
