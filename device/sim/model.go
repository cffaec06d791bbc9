package sim

import (
	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/topology"
)

// model is the product that a Spec stands for unless it says otherwise. Bandwidth is of
// all lanes in one direction.
type model struct {
	name           string
	memoryBytes    int64
	idle, full     float64 // watts
	link           topology.Kind
	lanes          int
	bytesPerSecond float64
}

const gib = 1 << 30

// modelOf returns the product of a vendor; one without a product of its own is a plain
// PCIe card.
func modelOf(v device.Vendor) model {
	switch v {
	case device.NVIDIA:
		return model{"H100", 80 * gib, 70, 700, topology.KindNVLink, 18, 450e9}
	case device.Ascend:
		return model{"910B3", 64 * gib, 90, 400, topology.KindHCCS, 7, 196e9}
	case device.MooreThreads:
		return model{"MTT S5000", 80 * gib, 80, 600, topology.KindMTLink, 7, 392e9}
	case device.AMD:
		return model{"MI300X", 192 * gib, 140, 750, topology.KindXGMI, 7, 448e9}
	}
	return model{string(v), 16 * gib, 20, 250, topology.KindSwitch, 0, 32e9}
}
