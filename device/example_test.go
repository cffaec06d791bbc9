package device_test

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/sim"
)

// A host with devices of two vendors, one of which vanishes, seen by a process that may use
// two devices.
func ExampleInventory() {
	host, err := sim.New(sim.Config{Devices: []sim.Spec{
		{Vendor: device.NVIDIA, Count: 3}, {Vendor: device.Ascend},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	inventory, err := device.NewInventory(device.InventoryConfig{Providers: []device.Provider{host}})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := inventory.Refresh(context.Background()); err != nil {
		fmt.Println(err)
	}
	if err := host.Inject("nvidia-1", sim.Vanish); err != nil {
		fmt.Println(err)
	}
	devices, err := inventory.Refresh(context.Background())
	if err != nil {
		fmt.Println(err)
	}
	for _, d := range devices {
		fmt.Printf("%s %s %d GiB: %v\n", d.ID, d.Model, d.MemoryBytes.Or(0)>>30, d.Health)
	}
	environment := func(name string) (string, bool) { return "1,0", name == device.CUDAVisibleDevices }
	for _, d := range device.Visible(device.NVIDIA, devices, environment) {
		fmt.Println("visible:", d.ID)
	}
	// Output:
	// ascend-0 910B3 64 GiB: healthy
	// nvidia-0 H100 80 GiB: healthy
	// nvidia-2 H100 80 GiB: healthy
	// nvidia-1 H100 80 GiB: gone
	// visible: nvidia-2
	// visible: nvidia-0
}
