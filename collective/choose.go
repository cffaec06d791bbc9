package collective

import (
	"cmp"
	"math/bits"
	"slices"

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
	Crowd               float64 // how many ranks share a processor; 1 at least
}

// choose returns the algorithm with the least estimated time among those that may be
// chosen.
func (m *model) choose(f *Fingerprint, deterministic bool) schedule.Algorithm {
	all := m.candidates(f, deterministic)
	best, least := all[0], m.timeOf(f, all[0])
	for _, a := range all[1:] {
		if t := m.timeOf(f, a); t < least {
			best, least = a, t
		}
	}
	return best
}

// timeOf is the estimated time of a call by an algorithm.
func (m *model) timeOf(f *Fingerprint, a schedule.Algorithm) float64 {
	return m.estimate(f.Collective, a, float64(f.bytes()))
}

// candidates are the algorithms that may be chosen: those that fold, where the order of a sum
// must not depend on its size, or where sums need more bits than elements have.
func (m *model) candidates(f *Fingerprint, deterministic bool) []schedule.Algorithm {
	fold, reduces := f.foldOnly(deterministic), f.Collective == AllReduce || f.Collective == Barrier
	switch c := f.Collective; {
	case c == AllToAll, c == ReduceScatter && fold:
		return []schedule.Algorithm{schedule.Direct}
	case c == AllGather, c == ReduceScatter:
		return []schedule.Algorithm{schedule.Direct, schedule.Ring}
	case c == Broadcast:
		return []schedule.Algorithm{schedule.Tree, schedule.Chain}
	case c == Reduce && !fold:
		return append(folders(), schedule.Tree, schedule.Chain)
	case reduces && m.Shared: // it copies least and waits least at any size: nothing to estimate
		return []schedule.Algorithm{schedule.Shared}
	case reduces && !fold:
		return m.reducers()
	}
	return folders()
}

// foldOnly reports whether only algorithms that fold may carry out a call.
func (f *Fingerprint) foldOnly(deterministic bool) bool {
	return deterministic || f.Type.half() && f.Op != Min && f.Op != Max
}

// folders are the algorithms that combine in the order of the ranks.
func folders() []schedule.Algorithm { return []schedule.Algorithm{schedule.Flat, schedule.Direct} }

// reducers are the algorithms of an all-reduce.
func (m *model) reducers() []schedule.Algorithm {
	all := []schedule.Algorithm{
		schedule.Flat, schedule.Direct, schedule.RecursiveDoubling, schedule.HalvingDoubling, schedule.Ring, schedule.Tree,
	}
	if m.Nodes > 1 && m.Local > 1 {
		all = append(all, schedule.Hierarchical)
	}
	return all
}

// worthTrying are the candidates whose estimate is not far behind the least, the best first.
func (m *model) worthTrying(f *Fingerprint, deterministic bool) []schedule.Algorithm {
	all := m.candidates(f, deterministic)
	slices.SortStableFunc(all, func(a, b schedule.Algorithm) int { return cmp.Compare(m.timeOf(f, a), m.timeOf(f, b)) })
	bound := maxBehind * m.timeOf(f, all[0])
	if f.bytes() > minSegment {
		bound = maxBehindLarge * m.timeOf(f, all[0])
	}
	return slices.DeleteFunc(all, func(a schedule.Algorithm) bool { return m.timeOf(f, a) > bound })
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
		t := 0.0
		for level := range bits.Len(uint(m.Ranks - 1)) { // half of the ranks send, then a quarter, ...
			t += once * m.alone(1/float64(int(2)<<level)) * (m.latency(s) + s*wire)
		}
		return t
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

// alone is what the time of a message is multiplied with when only this share of the ranks
// sends: all were sending when it was measured, those that share processors in turns.
func (m *model) alone(share float64) float64 { return max(share, 1/max(m.Crowd, 1)) }

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
