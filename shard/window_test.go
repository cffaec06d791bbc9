package shard_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

func TestWindowVerdicts(t *testing.T) {
	type step struct {
		seq, floor uint64
		want       shard.Verdict
	}
	const size = shard.WindowSize
	for name, steps := range map[string][]step{
		"first and again":        {{1, 1, shard.Fresh}, {1, 1, shard.Duplicate}, {2, 1, shard.Fresh}},
		"zero is no number":      {{0, 0, shard.Stale}, {0, 1, shard.Stale}, {1, 0, shard.Fresh}},
		"reordered":              {{3, 1, shard.Fresh}, {1, 1, shard.Fresh}, {2, 1, shard.Fresh}, {3, 1, shard.Duplicate}},
		"given up":               {{5, 4, shard.Fresh}, {3, 1, shard.Stale}, {3, 4, shard.Stale}, {5, 4, shard.Duplicate}},
		"floor never falls":      {{9, 9, shard.Fresh}, {8, 2, shard.Stale}, {9, 1, shard.Duplicate}},
		"edge":                   {{size, 1, shard.Fresh}, {size + 1, 1, shard.TooFar}, {size + 1, 2, shard.Fresh}, {size, 2, shard.Duplicate}},
		"too far leaves no mark": {{size + 1, 1, shard.TooFar}, {size + 1, 2, shard.Fresh}},
		"far jump":               {{1, 1, shard.Fresh}, {1 + 5*size, 1 + 5*size, shard.Fresh}, {1 + 5*size, 1 + 5*size, shard.Duplicate}},
		"bits are reused":        {{1, 1, shard.Fresh}, {1 + size, 2, shard.Fresh}, {1, 1, shard.Stale}},
		"end of the numbers": {
			{math.MaxUint64, math.MaxUint64, shard.Fresh}, {math.MaxUint64, math.MaxUint64, shard.Duplicate}, {1, 1, shard.Stale},
		},
		"far below the end": {{math.MaxUint64, 1, shard.TooFar}, {1, 1, shard.Fresh}},
	} {
		t.Run(name, func(t *testing.T) {
			var w shard.Window
			for i, s := range steps {
				require.Equal(t, s.want, w.Admit(s.seq, s.floor), "step %d: %+v", i, s)
			}
		})
	}
}

// oracle is the unbounded meaning of Windows.
type oracle struct {
	floor map[uint64]uint64
	seen  map[uint64]map[uint64]bool
}

func (o *oracle) admit(incarnation, seq, floor uint64) shard.Verdict {
	if o.seen[incarnation] == nil {
		o.seen[incarnation] = map[uint64]bool{}
	}
	switch f := max(o.floor[incarnation], floor, 1); {
	case seq < f:
		return shard.Stale
	case seq >= f+shard.WindowSize:
		return shard.TooFar
	case o.seen[incarnation][seq]:
		return shard.Duplicate
	default:
		o.floor[incarnation], o.seen[incarnation][seq] = f, true
	}
	return shard.Fresh
}

// TestT12Window sends 10^6 pushes of 300 incarnations, reordered, repeated and
// with late floors, to the windows and to an unbounded oracle, and those that are fresh to
// the windows of a follower, which stay the same. Now and then the windows are encoded and
// decoded, as a move does.
func TestT12Window(t *testing.T) {
	const incarnations, pushes = 300, 1_000_000
	rng := rand.New(rand.NewPCG(12, 0))
	o := oracle{map[uint64]uint64{}, map[uint64]map[uint64]bool{}}
	var ws, follower shard.Windows
	var floors [incarnations]uint64
	counts := map[shard.Verdict]int{}
	for i := range pushes {
		who := rng.Uint64N(incarnations)
		if rng.IntN(2) == 0 {
			floors[who] += rng.Uint64N(5)
		}
		if rng.IntN(10_000) == 0 {
			floors[who] += 3 * shard.WindowSize
		}
		floor := floors[who]
		if rng.IntN(10) == 0 {
			floor -= min(floor, rng.Uint64N(50)) // a late frame
		}
		seq := floor + rng.Uint64N(60)
		if rng.IntN(100) == 0 {
			seq = floor + rng.Uint64N(2*shard.WindowSize)
		}
		has := ws.Has(who+1, seq, floor)
		want, got := o.admit(who+1, seq, floor), ws.Admit(who+1, seq, floor)
		if want != got || has != (got == shard.Duplicate) {
			require.Equal(t, got == shard.Duplicate, has)
			require.Equal(t, want, got, "push %d: incarnation %d seq %d floor %d", i, who, seq, floor)
		}
		counts[got]++
		if got == shard.Fresh && follower.Admit(who+1, seq, floor) != shard.Fresh {
			require.Fail(t, "not fresh at the follower", "push %d", i)
		}
		if i%100_000 == 0 {
			require.Equal(t, ws.Append(nil), follower.Append(nil))
			decoded, err := shard.DecodeWindows(ws.Append(nil))
			require.NoError(t, err)
			ws = decoded
		}
	}
	for _, v := range []shard.Verdict{shard.Fresh, shard.Duplicate, shard.Stale, shard.TooFar} {
		require.Positive(t, counts[v], v)
	}
	require.Equal(t, incarnations, ws.Len())
	require.Equal(t, 12+incarnations*144, ws.EncodedLen(), "bounded by incarnations, not by history")
}

func TestWindowAllocates(t *testing.T) {
	var ws shard.Windows
	ws.Admit(7, 1, 1)
	seq := uint64(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		seq++
		ws.Admit(7, seq, seq-1)
	}))
}

func TestRetain(t *testing.T) {
	var ws shard.Windows
	for _, incarnation := range []uint64{1, 2, 3, 9} {
		require.Equal(t, shard.Fresh, ws.Admit(incarnation, 1, 1))
	}
	ws.Retain(5, []uint64{4, 2}) // 4 lives and has not pushed yet
	require.Equal(t, shard.Fenced, ws.Admit(1, 2, 1))
	require.Equal(t, shard.Fenced, ws.Admit(3, 2, 1))
	require.Equal(t, shard.Fenced, ws.Admit(5, 1, 1))
	require.Equal(t, shard.Duplicate, ws.Admit(2, 1, 1))
	require.Equal(t, shard.Fresh, ws.Admit(4, 1, 1))
	require.Equal(t, shard.Duplicate, ws.Admit(9, 1, 1))
	require.Equal(t, shard.Fresh, ws.Admit(6, 1, 1))
	require.Equal(t, uint64(5), ws.Horizon())
	require.Equal(t, uint64(9), ws.Last())

	ws.Retain(3, []uint64{1, 4}) // a late call: nothing comes back
	require.Equal(t, uint64(5), ws.Horizon())
	require.Equal(t, shard.Fenced, ws.Admit(1, 2, 1))
	ws.Retain(10, nil)
	require.Zero(t, ws.Len())
	require.Equal(t, uint64(10), ws.Last())
	require.Equal(t, shard.Fenced, ws.Admit(9, 2, 1))
	require.Equal(t, shard.Fresh, ws.Admit(11, 1, 1))
	ws.Retain(10, []uint64{5, 1})
	require.Equal(t, shard.Fenced, ws.Admit(5, 1, 1), "once fenced, always fenced")
}

func TestWindowsFull(t *testing.T) {
	var ws shard.Windows
	for i := range uint64(shard.MaxIncarnations) {
		ws.Admit(i+1, 1, 1)
	}
	require.Equal(t, shard.Full, ws.Admit(shard.MaxIncarnations+1, 1, 1))
	require.Equal(t, shard.Duplicate, ws.Admit(5, 1, 1))
	encoded := ws.Append(nil)
	require.Len(t, encoded, shard.MaxWindowsBytes)
	_, err := shard.DecodeWindows(encoded)
	require.NoError(t, err)
	ws.Retain(100, nil)
	require.Equal(t, shard.Fresh, ws.Admit(shard.MaxIncarnations+1, 1, 1))
}

func TestDecodeWindowsRefuses(t *testing.T) {
	var ws shard.Windows
	ws.Admit(3, 1, 1)
	ws.Admit(4, 1, 1)
	good := ws.Append(nil)
	_, err := shard.DecodeWindows(good)
	require.NoError(t, err)
	for name, bad := range map[string][]byte{
		"empty":      {},
		"cut":        good[:len(good)-1],
		"longer":     append(bytes.Clone(good), 0),
		"huge count": append(bytes.Clone(good[:8]), 0xff, 0xff, 0xff, 0xff),
		"unsorted":   append(append(bytes.Clone(good[:12]), good[12+144:]...), good[12:12+144]...),
	} {
		_, err := shard.DecodeWindows(bad)
		require.ErrorIs(t, err, shard.ErrWindowFormat, name)
	}
}

func FuzzDecodeWindows(f *testing.F) {
	var ws shard.Windows
	f.Add(ws.Append(nil))
	ws.Admit(3, 1, 1)
	ws.Admit(4, 7, 2)
	ws.Retain(2, nil)
	f.Add(ws.Append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		ws, err := shard.DecodeWindows(data)
		if err != nil {
			require.ErrorIs(t, err, shard.ErrWindowFormat)
			return
		}
		require.Equal(t, data, ws.Append(nil))
		ws.Admit(1, 1, 1)
		ws.Admit(math.MaxUint64, math.MaxUint64, math.MaxUint64)
	})
}

func BenchmarkAdmit(b *testing.B) {
	var ws shard.Windows
	seq := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		seq++
		ws.Admit(seq%300, seq/300+1, seq/300)
	}
}
