package collective

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/elasticps/elasticps/collective/schedule"
)

// A contest has at most so many rounds. In each of them an algorithm makes a block of calls in
// a row, as many as take about blockTime seconds, after one that is not counted: it pays for the
// plan, and finds the ranks as far apart as the algorithm before has left them.
const (
	maxRounds = 4
	blockTime = 1e-3
	minBlock  = 4
	maxBlock  = 32
)

// stayIn is how many times the time of the fastest an algorithm may take to stay in the
// contest after a round; after the last one only the fastest does.
var stayIn = [maxRounds - 1]float64{3, 2, 1.25}

// kind is what calls have in common that go by the same algorithm.
type kind struct {
	collective Collective
	folds      bool // only algorithms that fold may be chosen
	width      int  // bytes of an element
	size       int  // bits of the number of bytes
}

// kindOf is the kind of a call.
func kindOf(f *Fingerprint, deterministic bool) kind {
	width := f.Type.Bytes()
	return kind{f.Collective, f.foldOnly(deterministic), width, bits.Len(uint(f.Count * width))}
}

// contest finds the fastest algorithm of a kind of call by the calls themselves. It is pure:
// which algorithm a call takes depends on how many there were before and on what the ranks
// have told each other, so that it is the same on all of them.
type contest struct {
	bytes int // of the first call
	left  []contender
	block int // calls of a block that count
	round int
	made  int     // calls of this round
	took  float64 // seconds, by those of this block that count
}

// contender is an algorithm in a contest.
type contender struct {
	algorithm schedule.Algorithm
	least     float64 // seconds of a call in the fastest block so far
}

// String says how long it takes.
func (x contender) String() string { return fmt.Sprintf("%v %v", x.algorithm, duration(x.least)) }

// newContest begins a contest of algorithms for calls of so many bytes, in this order. least
// is about how long the fastest takes.
func newContest(bytes int, some []schedule.Algorithm, least float64) *contest {
	c := &contest{bytes: bytes, block: minBlock}
	for c.block < maxBlock && float64(c.block)*least < blockTime {
		c.block++
	}
	for _, a := range some {
		c.left = append(c.left, contender{algorithm: a})
	}
	return c
}

// decided reports whether one algorithm is left.
func (c *contest) decided() bool { return len(c.left) == 1 }

// due reports whether a round is over, and the ranks have to compare before the next call.
func (c *contest) due() bool { return !c.decided() && c.made == len(c.left)*(1+c.block) }

// next is the algorithm of the next call, when nothing is due.
func (c *contest) next() schedule.Algorithm {
	if c.decided() {
		return c.left[0].algorithm
	}
	return c.left[c.made/(1+c.block)].algorithm
}

// note takes the time of the call for which next was asked. It is the mean of a block that
// counts: a call may wait for the one before it, or take from the one after it.
func (c *contest) note(seconds float64) {
	x, place := &c.left[c.made/(1+c.block)], c.made%(1+c.block)
	c.made++
	if place == 0 {
		c.took = 0
		return
	}
	c.took += seconds
	if mean := c.took / float64(c.block); place == c.block && (c.round == 0 || mean < x.least) {
		x.least = mean
	}
}

// figures are what this rank has to tell the others at the end of a round.
func (c *contest) figures() []float64 {
	f := make([]float64, 0, len(c.left))
	for _, x := range c.left {
		f = append(f, x.least)
	}
	return f
}

// agree ends a round with the figures of all ranks, one rank after the other. Those of the
// fastest rank count: it came last, and did not wait for others.
func (c *contest) agree(all []float64) {
	n := len(c.left)
	for i, x := range all {
		if at := &c.left[i%n]; i < n || x < at.least {
			at.least = x
		}
	}
	best := slices.MinFunc(c.left, func(x, y contender) int { return cmp.Compare(x.least, y.least) })
	if c.round == len(stayIn) {
		c.left = []contender{best}
		return
	}
	c.left = slices.DeleteFunc(c.left, func(x contender) bool {
		return x.algorithm != best.algorithm && x.least > stayIn[c.round]*best.least
	})
	c.round++
	c.made = 0
}
