package topology

import "fmt"

// Kind says what the nearest way between two devices crosses. The larger kind is the
// nearer one, save that the direct links (XGMI to NVLink) are of different vendors and
// have no order among them.
type Kind uint8

// The scale, from far to near.
const (
	KindUnknown    Kind = iota // nothing is known
	KindRegion                 // several clusters of a region
	KindCluster                // several optical planes, or blocks, of a cluster
	KindPlane                  // several racks of an optical plane
	KindRack                   // several nodes of a rack
	KindNode                   // the interconnect of the sockets of a node (SYS)
	KindSocket                 // several PCIe host bridges of a socket (NODE)
	KindHostBridge             // a PCIe host bridge (PHB)
	KindSwitches               // several PCIe switches (PXB)
	KindSwitch                 // one PCIe switch (PIX)
	KindBoard                  // the switch of one board with two devices
	KindXGMI                   // links of AMD
	KindMTLink                 // links of Moore Threads
	KindHCCS                   // links of Ascend, direct or through their switch
	KindNVLink                 // links of NVIDIA, direct or through NVSwitch
	KindSame                   // nothing: the same device, or dies of one package
)

// kindNames in the order of the kinds.
var kindNames = [...]string{
	"unknown", "region", "cluster", "plane", "rack", "node", "socket", "host bridge",
	"switches", "switch", "board", "XGMI", "MTLink", "HCCS", "NVLink", "same device",
}

// String returns the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Direct reports whether the link leads from device to device, beside PCIe.
func (k Kind) Direct() bool { return k >= KindXGMI && k <= KindNVLink }

// domain reports whether failure domains of a tree may be of this kind.
func (k Kind) domain() bool { return k >= KindRegion && k <= KindRack }
