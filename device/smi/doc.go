// Package smi reads devices from what the vendors' command line tools print: nvidia-smi,
// npu-smi and mthreads-gmi.
//
// # Terms
//
// A Tool is a device.Provider that runs one of them. How a program is run can be replaced
// (Config.Run), which is how a container, a remote host or a test comes in. The parsers are
// pure and exported, for texts that were collected elsewhere. A tool also asks for the matrix of links
// ("topo") when it sees other devices than before.
//
// # Smallest use
//
//	tool, err := smi.Ascend(smi.Config{})
//	if err != nil {
//		return err
//	}
//	devices, err := tool.Devices(ctx)
//
// # Concurrency and limits
//
// All methods may be called from any goroutine. A tool runs one process at a time, since
// drivers refuse too many questions at once, for at most Timeout (5 s), and takes at most
// MaxOutputBytes (1 MiB) from it.
//
// # Errors
//
// A *RunError says that the program could not be run, ended with an error or printed too
// much; errors.Is finds exec.ErrNotFound, context.DeadlineExceeded or ErrOutput in it. A
// *device.TextError says at which line and field the text is not understood. A value that
// the tool does not report is unknown and no error; a device that has fallen off the bus is
// listed as gone.
//
// # References
//
// The formats are those of nvidia-smi with --query-gpu and --format=csv, of npu-smi info from
// version 22 to 26 (with and without a column for memory on the chip, with one chip per
// row and with several) and of mthreads-gmi 1.14 to 2.4.
package smi
