package collective

import (
	"math"
	"math/bits"

	"github.com/elasticps/elasticps/collective/schedule"
)

// model is what a group has measured of itself; all ranks have the same numbers. Times
// are in seconds.
type model struct {
	Ranks   int
	Nodes   int     // that have ranks
	Local   int     // ranks of the node that has the fewest
	Latency float64 // of a message to one rank, while all send one
	Gap     float64 // what each further message to another rank at the same time adds
	Byte    float64 // of a byte to one rank, while all send
	Spread  float64 // of a byte, while all send to all others at once
	// Messages of more than inlineBytes are handed over to another goroutine and come in
	// pieces: that adds Handover to the latency of one, and Handovers to that of one to each
	// other rank.
	Handover, Handovers float64
	Combine             float64 // of a byte that is combined
	Shared              bool    // all ranks share memory
	Far                 float64 // how many times as fast as that a byte within a node is; 1 at least
	// Trials are all-reduces that were timed, of growing size. What a model leaves out, such as
	// ranks that share processors, is in them.
	Trials []trial
}

// trial is how long an all-reduce of so many bytes took, by algorithm, as a multiple of the
// estimate. What was not tried is not in it.
type trial struct {
	Bytes  float64
	Excess map[schedule.Algorithm]float64
}

// choose returns the algorithm with the least estimated time among those that may be
// chosen: those that fold, where the order of a sum must not depend on its size, or where
// sums need more bits than elements have.
func (m *model) choose(f *Fingerprint, deterministic bool) schedule.Algorithm {
	candidates := folders()
	foldOnly := deterministic || f.Type.half() && f.Op != Min && f.Op != Max
	switch f.Collective {
	case AllToAll:
		return schedule.Direct
	case Broadcast:
		candidates = []schedule.Algorithm{schedule.Tree, schedule.Chain}
	case AllGather:
		candidates = []schedule.Algorithm{schedule.Direct, schedule.Ring}
	case ReduceScatter:
		candidates = []schedule.Algorithm{schedule.Direct}
		if !foldOnly {
			candidates = append(candidates, schedule.Ring)
		}
	case Reduce:
		if !foldOnly {
			candidates = append(candidates, schedule.Tree, schedule.Chain)
		}
	case AllReduce, Barrier:
		if m.Shared { // it copies least and waits least at any size: nothing to estimate
			return schedule.Shared
		}
		if !foldOnly {
			candidates = m.reducers()
		}
	}
	best, least := candidates[0], 0.0
	for i, a := range candidates {
		s := float64(f.Count * f.Type.Bytes())
		t := m.estimate(f.Collective, a, s)
		if f.Collective == AllReduce || f.Collective == Barrier {
			t *= m.excess(a, s)
		}
		if i == 0 || t < least {
			best, least = a, t
		}
	}
	return best
}

// folders are the algorithms that combine in the order of the ranks.
func folders() []schedule.Algorithm { return []schedule.Algorithm{schedule.Flat, schedule.Direct} }

// reducers are the algorithms of an all-reduce.
func (m *model) reducers() []schedule.Algorithm {
	all := append(folders(), schedule.RecursiveDoubling, schedule.HalvingDoubling, schedule.Ring, schedule.Tree)
	if m.Nodes > 1 && m.Local > 1 {
		all = append(all, schedule.Hierarchical)
	}
	return all
}

// excess is what an estimate of an all-reduce is to be multiplied with, by the trials of the
// next smaller and the next larger size, in logarithms; beyond them by the last one.
func (m *model) excess(a schedule.Algorithm, s float64) float64 {
	var below, above *trial
	for i := range m.Trials {
		t := &m.Trials[i]
		if _, ok := t.Excess[a]; !ok {
			continue
		}
		if t.Bytes <= s {
			below = t
		} else if above == nil {
			above = t
		}
	}
	switch {
	case below == nil && above == nil:
		return 1
	case below == nil:
		return above.Excess[a]
	case above == nil:
		return below.Excess[a]
	}
	x := math.Log(s/below.Bytes) / math.Log(above.Bytes/below.Bytes)
	return math.Pow(below.Excess[a], 1-x) * math.Pow(above.Excess[a], x)
}

// worthTrying are the algorithms whose estimate for s bytes is not far behind the least.
func (m *model) worthTrying(s float64, deterministic bool) (some []schedule.Algorithm) {
	candidates := m.reducers()
	if deterministic {
		candidates = folders()
	}
	least := math.Inf(1)
	for _, a := range candidates {
		least = min(least, m.estimate(AllReduce, a, s))
	}
	behind := maxBehind
	if s > minSegment {
		behind = maxBehindLarge
	}
	for _, a := range candidates {
		if m.estimate(AllReduce, a, s) <= behind*least {
			some = append(some, a)
		}
	}
	return some
}

// How many times the least estimate another may be for its algorithm to be tried. Large
// buffers take their time, and most of it is bytes, which the model knows.
const (
	maxBehind      = 8.0
	maxBehindLarge = 2.5
)

// estimate is the time of an operation on s bytes (of one part, where ranks have parts),
// as in the table of package schedule.
func (m *model) estimate(c Collective, a schedule.Algorithm, s float64) float64 {
	n := float64(m.Ranks)
	if m.Ranks < 2 {
		return 0
	}
	levels := float64(bits.Len(uint(m.Ranks)) - 1)
	extra := 0.0 // messages and buffers for ranks beyond a power of two
	if m.Ranks&(m.Ranks-1) != 0 {
		extra = 2
	}
	wire := m.Byte
	part := s / n
	if c == ReduceScatter || c == AllGather {
		part = s
	}
	once := 1.0 // ReduceScatter, AllGather and trees go one way, an all-reduce goes back too
	if c == AllReduce || c == Barrier {
		once = 2
	}
	switch a {
	case schedule.Flat:
		return m.burst(s) + (n-1)*s*m.Spread + n*s*m.Combine
	case schedule.Direct:
		if c == Reduce {
			once = 2
		}
		return once*m.burst(part) + once*(n-1)*part*m.Spread + n*part*m.Combine
	case schedule.Shared: // half of what Direct copies: once into memory, once out of it
		return once*m.Latency + (n-1)*part*m.Spread + n*part*m.Combine
	case schedule.RecursiveDoubling:
		return (levels+extra)*(m.latency(s)+s*wire) + levels*s*m.Combine
	case schedule.HalvingDoubling:
		t := extra*m.latency(s) + (2*(n-1)/n+extra)*s*wire + s*m.Combine
		for half := range int(levels) {
			t += 2 * m.latency(s/float64(int(2)<<half))
		}
		return t
	case schedule.Ring:
		return once*(n-1)*(m.latency(part)+part*wire) + (n-1)*part*m.Combine
	case schedule.Tree:
		deep := float64(bits.Len(uint(m.Ranks - 1)))
		return once * deep * (m.latency(s) + s*wire)
	case schedule.Chain:
		segments := max(1, s/float64(chainSegment(int(s), m.Ranks)))
		return once * ((n-2+segments)*m.latency(s/segments) + s*wire*(1+(n-2)/segments))
	case schedule.Hierarchical:
		nodes, local := float64(m.Nodes), float64(m.Local)
		within := 2 * (m.latency(s/local) + s*m.Byte/m.far())
		return within + 2*(nodes-1)*(m.latency(s/local/nodes)+s/local/nodes*wire) + s*m.Combine
	}
	return 0
}

// latency is that of a message of s bytes to one rank.
func (m *model) latency(s float64) float64 {
	if s > inlineBytes {
		return m.Latency + m.Handover
	}
	return m.Latency
}

// burst is that of a message to each other rank.
func (m *model) burst(s float64) float64 {
	t := m.Latency + float64(m.Ranks-2)*m.Gap
	if s > inlineBytes {
		t += m.Handovers
	}
	return t
}

func (m *model) far() float64 { return max(m.Far, 1) }

// Bounds of the segments that are chosen, in bytes: one is received and combined while
// the next is under way, and each costs a message.
const (
	minSegment = 256 << 10
	maxSegment = 512 << 10
	minPacked  = 64 << 10 // up to minSegment
)

// segmentBytes is how long the segments of a call are: there are some for each of the connections
// to a rank.
func segmentBytes(f *Fingerprint, ranks, streams, forced int) int {
	if forced > 0 {
		return min(forced, maxFrame)
	}
	s := f.units() * f.unitBytes()
	switch {
	case f.Codec != 0: // to pack and unpack one takes longer than to send it
		return min(max(s/ranks/2, minPacked), minSegment)
	case f.Algorithm == schedule.Chain || f.Algorithm == schedule.Tree:
		return chainSegment(s, ranks)
	case f.Collective == AllReduce || f.Collective == Reduce:
		s /= ranks
	}
	return min(max(s/max(2, streams), minSegment), maxSegment)
}

// chainSegment cuts s bytes so that filling the chain takes a fraction of the whole.
func chainSegment(s, ranks int) int { return min(max(s/(4*ranks), minSegment), maxSegment) }
