// Package sim simulates the devices of one host: any mix of vendors, with a load that
// follows from a seed, and with faults on request.
//
// # Terms
//
// A Host is a device.Provider. A Spec is a number of like devices of it, which are linked
// with each other. A Fault is what is wrong with a device: it vanishes from the list, it
// reports memory errors, or it hangs and the whole list with it, as the vendors' drivers
// do.
//
// # Smallest use
//
//	host, err := sim.New(sim.Config{Seed: 1, Devices: []sim.Spec{
//		{Vendor: device.NVIDIA, Count: 8}, {Vendor: device.Ascend, Count: 8},
//	}})
//	if err != nil {
//		return err
//	}
//	devices, err := host.Devices(ctx)
//	err = host.Inject("nvidia-3", sim.Vanish)
//	err = host.Inject("nvidia-3", sim.None) // comes back
//
// # Concurrency, errors, limits
//
// All methods may be called from any goroutine. The load is a function of seed, device
// and time alone, so it is the same however often it is read. A host has at most 1,024
// devices. Devices blocks while a device hangs, until the fault is lifted or ctx ends,
// with an error that names the device. The figures of the models are rounded from the
// vendors' data sheets; temperature, power and memory in use simply follow the load.
package sim
