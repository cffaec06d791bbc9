// Package device describes accelerators of several vendors in one form, keeps a list of
// those of a host, and simulates one as a link of a stated bandwidth.
//
// # Terms
//
// A device is an accelerator, or the part of a host that plays one. A Figure is a number
// that a source may not know; unknown is a value, not an error: whoever reads it leaves
// that signal out. A Provider lists devices: those of packages device/smi (the vendors'
// tools), device/exporter (metric pages), device/sysfs (files of the kernel), device/nvml
// (the vendor's library) and device/sim (simulated). An Inventory asks providers and
// remembers. Visibility variables such as CUDA_VISIBLE_DEVICES hide devices from a
// process; the tools do not follow them, so Visible does. A Link is a way between two devices, in
// the words of package topology; Graph makes one graph of those of a host. Package device/pool gives
// devices out in parts. A SimLink is the simulated link of a parameter server.
//
// # Smallest use
//
//	tool, err := smi.NVIDIA(smi.Config{})
//	if err != nil {
//		return err
//	}
//	inventory, err := device.NewInventory(device.InventoryConfig{Providers: []device.Provider{tool}})
//	if err != nil {
//		return err
//	}
//	devices, err := inventory.Refresh(ctx)           // err: who did not answer
//	mine := device.Visible(device.NVIDIA, devices, os.LookupEnv)
//
// # Concurrency and ordering
//
// Every method may be called from any goroutine. A Device is a value. Transfers on one
// SimLink take their turn in the order in which their calls to Use arrived; a transfer never
// overtakes an earlier one.
//
// # Errors and limits
//
// Refresh returns the whole list with a *ProviderError for each provider that does not
// answer within Timeout; providers return a *TextError for text that they do not
// understand, with line and field. An inventory remembers 256 devices that are gone, and
// holds one goroutine for each provider that hangs. Use fails with a *UseError that names
// the device and the transfer when its context ends or the number of bytes is negative. A
// SimLink keeps a fixed number of checkpoints (1,024) over HistoryWindow, whatever the number
// of transfers. Memory is in bytes, utilization a fraction from 0 to 1.
//
// # References
//
// The virtual finish time is that of a single FIFO server: Kleinrock, Queueing
// Systems, volume 1 (1975), section 1.2.
package device
