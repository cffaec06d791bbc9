package topology

// rates are usual bandwidths in one direction, in bytes per second: of one lane for direct
// kinds. They order ways and estimate times; whoever has measured better ones says so in
// Link.BytesPerSecond or Level.BytesPerSecond.
//
//   - same device: half of what HBM2e carries (2 TB/s, A100), as a copy reads and writes
//   - NVLink: 25 GB/s per link of V100, A100 and H100 (NVIDIA H100 whitepaper: 18 links, 900 GB/s both ways)
//   - HCCS: 28 GB/s, one seventh of the 392 GB/s both ways of an 8-device full mesh (Ascend 910B)
//   - MTLink: 20 GB/s; an assumption, as no figure per link is published: MTML tells the true one
//   - XGMI: 50 GB/s per link of MI200 (AMD CDNA 2 whitepaper: 100 GB/s both ways)
//   - board, switch: PCIe 4.0 x16, 16 GT/s times 16 lanes at 128b/130b (PCI Express Base 4.0)
//   - switches, host bridge, socket: the same, shared; what is left on the way is an estimate
//   - node: 16 GB/s, what NCCL assumes between older AMD sockets (src/graph/topo.h); newer ones
//     carry up to twice that
//   - rack, plane: one 200 Gb/s port per device (DGX A100, Atlas 800); cluster: half of it;
//     region: a share of 10 Gb/s
var rates = [...]float64{
	KindRegion: 1.25e9, KindCluster: 12.5e9, KindPlane: 25e9, KindRack: 25e9,
	KindNode: 16e9, KindSocket: 20e9, KindHostBridge: 24e9,
	KindSwitches: 28e9, KindSwitch: pcieRate, KindBoard: pcieRate,
	KindXGMI: 50e9, KindMTLink: 20e9, KindHCCS: 28e9, KindNVLink: 25e9,
	KindSame: 1e12,
}

// pcieRate is that of PCIe 4.0 x16.
const pcieRate = 16e9 * 16 / 8 * 128 / 130

// Rate returns the usual bandwidth of a kind in one direction, in bytes per second: of
// one lane for direct kinds, 0 for KindUnknown. It is an estimate.
func Rate(k Kind) float64 {
	if int(k) < len(rates) {
		return rates[k]
	}
	return 0
}

// nvlinkRate returns the bandwidth of one lane of NVLink in one direction for a compute
// capability as NCCL writes it (80 is 8.0): the figures of the products' data sheets,
// P100 (4 links, 160 GB/s both ways), GA10x (4 links, 112.5 GB/s), B200 (18 links, 1.8 TB/s).
func nvlinkRate(capability int) float64 {
	switch {
	case capability >= 100:
		return 50e9
	case capability == 86:
		return 14.0625e9
	case capability >= 60 && capability < 70:
		return 20e9
	}
	return rates[KindNVLink]
}

// PCIeBytesPerSecond returns the bandwidth of a slot in one direction, of lanes that make so
// many gigatransfers per second: 8b/10b coding up to 5 GT/s, from 8 GT/s on 128b/130b (PCI
// Express Base 3.0, section 4.2).
func PCIeBytesPerSecond(gigatransfers float64, lanes int) float64 {
	efficiency := 128.0 / 130
	if gigatransfers <= 5 {
		efficiency = 0.8
	}
	return gigatransfers * 1e9 / 8 * efficiency * float64(lanes)
}
