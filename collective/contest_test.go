package collective

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/schedule"
)

// field is the contest of all ranks, as each of them sees it.
type field []*contest

func newField(ranks int, least float64, some ...schedule.Algorithm) field {
	f := make(field, ranks)
	for rank := range f {
		f[rank] = newContest(1<<10, some, least)
	}
	return f
}

// run makes calls that take what took says until the contest is over, and returns its
// algorithms. It fails if ranks do not do the same.
func (f field) run(t *testing.T, took func(rank int, a schedule.Algorithm) float64) (calls []schedule.Algorithm) {
	t.Helper()
	for !f[0].decided() {
		require.Less(t, len(calls), maxRounds*(1+maxBlock)*int(schedule.Shared), "it does not end")
		var all []float64
		for _, c := range f {
			require.Equal(t, f[0].due(), c.due())
			if c.due() {
				all = append(all, c.figures()...)
			}
		}
		if len(all) > 0 {
			for _, c := range f {
				c.agree(all)
			}
		}
		a, decided := f[0].next(), f[0].decided()
		for rank, c := range f {
			require.Equal(t, a, c.next(), "rank %d", rank)
			require.Equal(t, decided, c.decided(), "rank %d", rank)
			if !decided {
				c.note(took(rank, a))
			}
		}
		calls = append(calls, a)
	}
	for _, c := range f {
		require.Equal(t, calls[len(calls)-1], c.next(), "it stays with the same")
		require.False(t, c.due())
	}
	return calls
}

// count is how many calls were made by an algorithm.
func count(calls []schedule.Algorithm, a schedule.Algorithm) (n int) {
	for _, x := range calls {
		if x == a {
			n++
		}
	}
	return n
}

func TestContestIsWonByTheFastest(t *testing.T) {
	slow := map[schedule.Algorithm]float64{schedule.Flat: 31e-6, schedule.Ring: 11e-6, schedule.Tree: 10e-6, schedule.Direct: 21e-6}
	rng := rand.New(rand.NewPCG(1, 2))
	first := map[schedule.Algorithm]bool{}
	f := newField(4, 10e-6, schedule.Flat, schedule.Direct, schedule.Ring, schedule.Tree)
	calls := f.run(t, func(rank int, a schedule.Algorithm) float64 {
		switch {
		case !first[a] && rank == 0:
			first[a] = true
			return 1 // a plan, and other things that happen once
		case rank == 2:
			return slow[a] // it comes last
		}
		return slow[a] + rng.Float64()*1e-3 // the others wait
	})
	require.Equal(t, schedule.Tree, calls[len(calls)-1])
	require.Equal(t, 1+maxBlock, count(calls, schedule.Flat), "three times as slow: one block")
	require.Equal(t, 2*(1+maxBlock), count(calls, schedule.Direct))
	require.Equal(t, 4*(1+maxBlock), count(calls, schedule.Ring))
	require.Equal(t, schedule.Flat, calls[0], "the best estimate first")
}

// Blocks in which something else had the processors do not count, if there is one in which
// nothing had.
func TestContestForgetsDisturbance(t *testing.T) {
	made := 0
	calls := newField(2, 1e-3, schedule.Ring, schedule.Direct).run(t, func(_ int, a schedule.Algorithm) float64 {
		made++
		x := map[schedule.Algorithm]float64{schedule.Ring: 1.1e-3, schedule.Direct: 1e-3}[a]
		const block = 2 * (1 + minBlock) // of both ranks
		if block < made && made <= 2*block || made > 2*maxRounds*block-block/2 {
			return 1.4 * x // the first and the last block of Direct
		}
		return x
	})
	require.Equal(t, schedule.Direct, calls[len(calls)-1])
}

// Whatever the figures are, ranks agree and the contest ends.
func TestContestEnds(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		some := []schedule.Algorithm{schedule.Flat, schedule.Direct, schedule.Ring, schedule.Tree, schedule.HalvingDoubling}[:2+rng.IntN(4)]
		strange := []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300}
		calls := newField(1+rng.IntN(5), math.Exp(20*rng.Float64()-15), some...).run(t, func(rank int, a schedule.Algorithm) float64 {
			if i := int(seed) % (2 * len(strange)); rank == 0 && int(a)%2 == 0 && i < len(strange) {
				return strange[i]
			}
			return rng.ExpFloat64()
		})
		require.LessOrEqual(t, len(calls), 1+maxRounds*len(some)*(1+maxBlock), "seed %d", seed)
	}
}

func TestContestOfOne(t *testing.T) {
	c := newContest(0, []schedule.Algorithm{schedule.Flat}, 0)
	require.True(t, c.decided())
	require.False(t, c.due())
	require.Equal(t, schedule.Flat, c.next())
}

// Blocks are longer where calls are shorter, within bounds.
func TestContestBlocks(t *testing.T) {
	for _, x := range []struct {
		least float64
		want  int
	}{{0, maxBlock}, {1e-9, maxBlock}, {blockTime / 10, 10}, {1, minBlock}, {math.Inf(1), minBlock}, {math.NaN(), minBlock}} {
		require.Equal(t, x.want, newContest(0, folders(), x.least).block, "%v", x.least)
	}
}

// However many calls there are, their kinds are few.
func TestKindsAreFew(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	kinds := map[kind]bool{}
	for range 1_000_000 {
		f := &Fingerprint{Collective: AllReduce, Op: Op(1 + rng.IntN(int(opEnd-1))), Type: Type(1 + rng.IntN(int(typeEnd-1))), Root: rng.IntN(8)}
		f.Count = rng.IntN(1 + schedule.MaxCount>>rng.IntN(40))
		kinds[kindOf(f, rng.IntN(2) == 0)] = true
	}
	require.LessOrEqual(t, len(kinds), 2*4*50)
	same := func(count int, op Op) kind {
		return kindOf(&Fingerprint{Collective: AllReduce, Type: Float16, Op: op, Count: count}, false)
	}
	require.Equal(t, same(512, Sum), same(1023, Sum))
	require.Equal(t, same(512, Sum), same(512, Average))
	require.NotEqual(t, same(512, Sum), same(511, Sum))
	require.NotEqual(t, same(512, Sum), same(512, Max), "a sum of halves has to fold")
}
