package table

const (
	minFilterBytes = 64
	numProbes      = 4
)

// filter is a counting Bloom filter of one block: an id is counted in several counters and
// has the least of them, which is at least its true count. Only the counters that are the
// least are raised ("conservative update": Estan and Varghese, "New directions in traffic
// measurement and accounting", SIGCOMM 2002).
type filter struct {
	counts []byte // nil: all zero
	since  uint32 // when it was last halved, or begun
}

// probe returns counter number i of an id.
func (f *filter) probe(hash uint64, i int) *byte {
	mixed := hash * 0x9e3779b97f4a7c15 // the high bits of the hash are those of the block
	at := uint32(mixed>>32) + uint32(i)*(uint32(mixed)|1)
	return &f.counts[uint64(at)*uint64(len(f.counts))>>32]
}

// estimate is the count of an id, or more.
func (f *filter) estimate(hash uint64) uint32 {
	if f.counts == nil {
		return 0
	}
	least := byte(maxFilterTouches)
	for i := range numProbes {
		least = min(least, *f.probe(hash, i))
	}
	return uint32(least)
}

// touch counts an id and reports whether its count is at least enough, beyond which
// it does not count.
func (f *filter) touch(hash uint64, enough uint32) bool {
	count := min(f.estimate(hash)+1, enough)
	for i := range numProbes {
		p := f.probe(hash, i)
		*p = max(*p, byte(count))
	}
	return count >= enough
}

// halve lets what was counted long ago count less.
func (f *filter) halve() {
	for i := range f.counts {
		f.counts[i] /= 2
	}
}
