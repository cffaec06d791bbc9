package topology

import "cmp"

// MaxLanes is the largest number of lanes of one link: NVLINK_MAX_LINKS of NVML.
const MaxLanes = 36

// Cost is the share of its bandwidth that a link has lost, in thousandths: 0 is a
// healthy one, Down one that carries nothing.
type Cost int

// Down is the cost of a link that carries nothing.
const Down Cost = 1000

// Link is the way between two devices.
type Link struct {
	// Kind is that of the fastest way.
	Kind Kind
	// Lanes is how many links are bonded, for direct kinds; else 0.
	Lanes int
	// Path is the kind of the way over PCIe and sockets beneath a direct link,
	// KindUnknown if that is not known. For other kinds it is not used.
	Path Kind
	// BytesPerSecond estimates the bandwidth in one direction, without Cost. 0 is unknown.
	BytesPerSecond float64
	// Cost is what the link has lost.
	Cost Cost
}

// NewLink returns a link of the kind with its usual bandwidth. Lanes counts for direct
// kinds only, where 0 means 1.
func NewLink(kind Kind, lanes int) Link {
	if !kind.Direct() {
		return Link{Kind: kind, BytesPerSecond: Rate(kind)}
	}
	lanes = max(1, lanes)
	return Link{Kind: kind, Lanes: lanes, BytesPerSecond: float64(lanes) * Rate(kind)}
}

// pathScores are the scores of ways that are not direct. Those within a node are the ones
// of NVIDIA/go-gpuallocator; those beyond it are below every one of them.
var pathScores = [...]int{
	KindRegion: 2, KindCluster: 4, KindPlane: 6, KindRack: 8,
	KindNode: 10, KindSocket: 20, KindHostBridge: 30, KindSwitches: 40, KindSwitch: 50, KindBoard: 60,
	KindSame: maxPairScore,
}

const (
	// bytesPerPoint makes a lane of NVLink at 25 GB/s worth 100 points, which is what
	// NVIDIA/go-gpuallocator gives a lane.
	bytesPerPoint = 25e9 / 100
	// maxPairScore keeps sums over the pairs of 16 devices within 20 bits.
	maxPairScore = 8000
)

// Score returns how well the link connects two devices, 0 (unknown, or down) to 8,000. It is
// the score of the way over PCIe, sockets and network, 2 to 60, plus 100 for every 25 GB/s of
// direct links, less the share that Cost takes.
func (l Link) Score() int {
	path := l.Kind
	if l.Kind.Direct() {
		path = l.Path
	}
	score := 0
	if int(path) < len(pathScores) {
		score = pathScores[path]
	}
	if l.Kind.Direct() {
		score += int(min(l.BytesPerSecond/bytesPerPoint, maxPairScore))
	}
	kept := Down - min(max(l.Cost, 0), Down)
	return min(score, maxPairScore) * int(kept) / int(Down)
}

// Bandwidth estimates what the link carries in one direction, in bytes per second, with
// its cost taken off.
func (l Link) Bandwidth() float64 {
	return l.BytesPerSecond * float64(Down-min(max(l.Cost, 0), Down)) / float64(Down)
}

// weaker returns the one of two descriptions of a link that promises less.
func weaker(a, b Link) Link {
	if cmp.Or(cmp.Compare(a.Score(), b.Score()), cmp.Compare(a.Bandwidth(), b.Bandwidth())) <= 0 {
		return a
	}
	return b
}
