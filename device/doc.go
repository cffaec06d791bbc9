// Package device describes accelerators and their load, and simulates one as a
// link of a stated bandwidth.
//
// # Terms
//
// A device is an accelerator, or the part of a host that plays one. Its
// utilization is the fraction of a window of time in which it was busy, 0 to 1;
// Unknown (-1) stands for a figure that the device does not report, and is a
// value, not an error: whoever reads it leaves that signal out.
//
// # Smallest use
//
//	sim, err := device.NewSim(device.SimConfig{Name: "sim-0", BytesPerSecond: 50e6})
//	if err != nil {
//		return err
//	}
//	err = sim.Use(ctx, 1<<20)                    // blocks for about 21 ms
//	busy := sim.Utilization(time.Second)         // about 0.021
//
// # Concurrency and ordering
//
// Every method may be called from any goroutine. Transfers on one Sim take their
// turn in the order in which their calls to Use arrived; a transfer never
// overtakes an earlier one.
//
// # Errors and limits
//
// Use fails with a *UseError that names the device and the transfer when its
// context ends or the number of bytes is negative. A Sim keeps a fixed number of
// checkpoints (1,024) over HistoryWindow, whatever the number of transfers.
//
// # References
//
// The virtual finish time is that of a single FIFO server: Kleinrock, Queueing
// Systems, volume 1 (1975), section 1.2.
package device
