package collective

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/elasticps/elasticps/collective/schedule"
)

// The parts of an arena. Words that different ranks write are two cache lines apart: the
// processor fetches lines in pairs.
const (
	wordBytes   = 128
	arenaMagic  = 0x6d656d2d63656c31
	stepAt      = wordBytes     // how far the owner is
	parkedAt    = 2 * wordBytes // for whom the owner sleeps
	callsAt     = 3 * wordBytes // headers of its latest calls
	callSlots   = 2
	indexesAt   = 4 * wordBytes // head and tail of its ring to each mate
	arenaPage   = 4 << 10
	numSlots    = 4
	slotBytes   = 256 << 10
	maxRing     = 1 << 20
	minRing     = 64 << 10
	ringsInAll  = 4 << 20
	maxMates    = 64 // ranks of one host that share memory
	parkedNever = 0
	parkedAny   = maxMates + 1
)

// arenaShape is where the parts of an arena lie: all ranks of a host compute the same.
type arenaShape struct {
	places int // ranks of the host
	slots  int // offset
	rings  int
	ring   int // bytes of each
	size   int
}

func shapeOf(places int) arenaShape {
	s := arenaShape{places: places, ring: maxRing}
	for s.ring > minRing && s.ring*(places-1) > ringsInAll {
		s.ring /= 2
	}
	s.slots = (indexesAt + 2*wordBytes*places + arenaPage - 1) / arenaPage * arenaPage
	s.rings = s.slots + numSlots*slotBytes
	s.size = s.rings + places*s.ring
	return s
}

// arena is memory of one rank that all ranks of its host read and write. What is in it
// is as trustworthy as what comes from a socket: it is looked at once, checked, and used
// from a copy where that matters.
type arena struct {
	arenaShape
	mem []byte
}

// sign begins an arena.
func (a *arena) sign(epoch uint64, place int) {
	for i, x := range [...]uint64{arenaMagic, wireLevel, epoch, uint64(a.places), uint64(place)} {
		a.word(8 * i).Store(x)
	}
}

// verify finds out whether an arena is that of a rank.
func (a *arena) verify(epoch uint64, place int) error {
	for i, x := range [...]uint64{arenaMagic, wireLevel, epoch, uint64(a.places), uint64(place)} {
		if got := a.word(8 * i).Load(); got != x {
			return fmt.Errorf("%w: shared memory with %#x at word %d, must be %#x", ErrRefused, got, i, x)
		}
	}
	return nil
}

func (a *arena) word(at int) *atomic.Uint64 {
	_ = a.mem[at+7]
	return (*atomic.Uint64)(unsafe.Pointer(&a.mem[at]))
}

func (a *arena) step() *atomic.Uint64          { return a.word(stepAt) }
func (a *arena) parked() *atomic.Uint64        { return a.word(parkedAt) }
func (a *arena) head(place int) *atomic.Uint64 { return a.word(indexesAt + 2*wordBytes*place) }
func (a *arena) tail(place int) *atomic.Uint64 {
	return a.word(indexesAt + 2*wordBytes*place + wordBytes)
}
func (a *arena) ringTo(place int) []byte { return part(a.mem, a.rings+place*a.ring, a.ring) }
func (a *arena) call(n uint64) []byte {
	return part(a.mem, callsAt+int(n%callSlots)*headerBytes, headerBytes)
}

func (a *arena) slot(n uint64) []byte {
	return part(a.mem, a.slots+int(n%numSlots)*slotBytes, slotBytes)
}

// part is n bytes, and no more can be made of them.
func part(b []byte, at, n int) []byte { return b[at : at+n : at+n] }

// ranges cuts s bytes into parts for n ranks, at cache lines, the last ones shorter or
// empty.
func ranges(s, n, i int) schedule.Range {
	const line = 64
	each := ((s+n-1)/n + line - 1) / line * line
	return schedule.Range{Begin: min(i*each, s), End: min((i+1)*each, s)}
}
