package pool_test

import (
	"fmt"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/pool"
)

// Half a device for a job of high priority pushes memory of another one to the host; a
// third finds no computing time.
func Example() {
	p, err := pool.New(pool.Config{
		MemoryFactor: 1.5,
		Devices:      []device.Device{{ID: "gpu-0", MemoryBytes: device.Known(int64(80 << 30))}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, half, err := pool.Share(0.5)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range []pool.Request{
		{Milli: half, Bytes: 60 << 30, Priority: 1},
		{Milli: half, Bytes: 40 << 30, Priority: 5},
		{Milli: half, Bytes: 1 << 30},
	} {
		granted, transfers, err := p.Reserve(r)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("reservation %d on %s\n", granted.ID, granted.Parts[0].Device)
		for _, t := range transfers {
			fmt.Printf("  to the host: %d GiB of reservation %d\n", t.Bytes>>30, t.Reservation)
		}
	}
	// Output:
	// reservation 1 on gpu-0
	// reservation 2 on gpu-0
	//   to the host: 20 GiB of reservation 1
	// pool: refused for now: gpu-0: computing time: want 500, have 0
}
