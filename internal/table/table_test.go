package table_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/shard"
)

// testRule has a slot of each kind, and every step leaves a trace of its number.
func testRule(dim int) table.Rule {
	return table.Rule{
		Slots: []table.Slot{{Elems: dim, Start: 0.5}, {Elems: 1, Start: -1}},
		Steps: true,
		Step: func(w, g []float32, slots [][]float32, t uint64, _ float64) {
			for i := range w {
				slots[0][i] += g[i] * float32(t)
				w[i] -= g[i] + slots[0][i]/4
			}
			slots[1][0]++
		},
	}
}

func sgdRule() table.Rule {
	return table.Rule{Step: func(w, g []float32, _ [][]float32, _ uint64, _ float64) { kernel.SGD(w, g, 1, 0) }}
}

func newTable(t *testing.T, c table.Config) *table.Table {
	t.Helper()
	if c.End == 0 {
		c.End = c.Rows * int64(c.Dim)
	}
	require.NoError(t, c.Validate())
	return table.New(c)
}

// everyID has the ids at which something might break, and some hashes.
func everyID() []int64 {
	ids := []int64{0, 1, -1, 2, math.MinInt64, math.MinInt64 + 1, math.MaxInt64, math.MaxInt64 - 1, 1 << 32, -1 << 32, math.MaxUint32}
	for i := range int64(50) {
		ids = append(ids, int64(shard.Hash(i)))
	}
	return ids
}

// Rows of any id are there after they were pushed, with their first weights less the
// gradient, whatever their size; and absent ones read as their first weights.
func TestT30EveryID(t *testing.T) {
	for _, dim := range []int{1, 3, 16, 64, 70_000} {
		t.Run(fmt.Sprint(dim), func(t *testing.T) {
			tab := newTable(t, table.Config{
				Name: "x", Rows: 100, Dim: dim, Rule: sgdRule(),
				Init: shard.Initializer{Kind: shard.Uniform, Scale: 1, Seed: 3},
			})
			ids := everyID()
			before, after, grads := make([]float32, len(ids)*dim), make([]float32, len(ids)*dim), make([]float32, len(ids)*dim)
			kernel.Uniform(grads, 1, 2, 0, 1)
			tab.Pull(ids, before)
			require.Zero(t, tab.Rows(), "a pull makes no rows")
			require.Equal(t, table.Result{Applied: len(ids)}, tab.Push(ids, grads, 1))
			require.Equal(t, int64(len(ids)), tab.Rows())
			tab.Pull(ids, after)
			want := slices.Clone(before)
			kernel.SGD(want, grads, 1, 0)
			require.True(t, slices.Equal(want, after))
			for _, id := range ids {
				require.True(t, tab.Has(id))
			}
			require.Equal(t, len(ids), tab.Delete(ids))
			require.Zero(t, tab.Rows())
			tab.Pull(ids, after)
			require.True(t, slices.Equal(before, after))
		})
	}
}

// The first weights of a row do not depend on how the table is cut, on other ids or on
// when it is asked for.
func TestT29FirstWeights(t *testing.T) {
	for _, kind := range []shard.InitKind{shard.Zeros, shard.Uniform, shard.Normal, shard.TruncatedNormal, shard.Xavier} {
		t.Run(kind.String(), func(t *testing.T) {
			const dim, total = 16, 10_000
			c := table.Config{Name: "x", Rows: total, Dim: dim, Rule: sgdRule(), Init: shard.Initializer{Kind: kind, Scale: 0.5, Seed: 9}}
			whole := newTable(t, c)
			want := make([]float32, dim)
			seen := make(map[[dim]float32]bool)
			for parts := int64(1); parts <= 3; parts++ {
				for part := range parts {
					c.Begin, c.End = part*total/parts*dim, (part+1)*total/parts*dim
					piece := newTable(t, c)
					for _, id := range everyID() {
						if !piece.Holds([]int64{id}) {
							require.Equal(t, -1, piece.BlockOf(id))
							continue
						}
						require.Less(t, piece.BlockOf(id), piece.Blocks())
						whole.Pull([]int64{id}, want)
						seen[[dim]float32(want)] = true
						got := make([]float32, dim)
						piece.Pull([]int64{id}, got)
						require.Equal(t, want, got)
						piece.Push([]int64{id}, make([]float32, dim), 1)
						piece.Pull([]int64{id}, got)
						require.Equal(t, want, got)
					}
				}
			}
			if kind != shard.Zeros {
				require.Len(t, seen, len(everyID()), "each row has values of its own")
			}
		})
	}
}

func TestInvalidConfig(t *testing.T) {
	valid := table.Config{Name: "x", Rows: 10, Dim: 2, End: 20, Rule: sgdRule()}
	require.NoError(t, valid.Validate())
	for want, spoil := range map[string]func(*table.Config){
		"0 rows of 2 weights":          func(c *table.Config) { c.Rows = 0 },
		"10 rows of -1 weights":        func(c *table.Config) { c.Dim = -1 },
		"at most 1099511627776 in all": func(c *table.Config) { c.Rows = math.MaxInt64 },
		"elements [0, 21)":             func(c *table.Config) { c.End = 21 },
		"elements [-1, 20)":            func(c *table.Config) { c.Begin = -1 },
		"initializer assigned":         func(c *table.Config) { c.Init.Kind = shard.Assigned },
		"rule without Step":            func(c *table.Config) { c.Rule.Step = nil },
		"slot 0 of 3 elements":         func(c *table.Config) { c.Rule.Slots = []table.Slot{{Elems: 3}} },
		"filter of -1 bytes":           func(c *table.Config) { c.Admit.FilterBytes = -1 },
		"a filter counts to 255":       func(c *table.Config) { c.Admit = table.Admission{Touches: 256, FilterBytes: 1} },
		"MaxRows -1":                   func(c *table.Config) { c.MaxRows = -1 },
		"eviction 3 is unknown":        func(c *table.Config) { c.Evict = 3 },
	} {
		c := valid
		spoil(&c)
		require.ErrorContains(t, c.Validate(), want)
	}
	faults := table.Config{MaxRows: -1, Evict: 9}.Validate()
	for _, want := range []string{"0 rows", "Step", "MaxRows -1", "eviction 9"} {
		require.ErrorContains(t, faults, want, "all at once")
	}
}

// Blocks of few rows and of many take what their rows need, and give it back.
func TestMemoryIsGivenBack(t *testing.T) {
	tab := newTable(t, table.Config{Name: "x", Rows: 1 << 16, Dim: 16, Rule: testRule(16), ExpireAfter: 10})
	ids := make([]int64, 100_000)
	for i := range ids {
		ids[i] = int64(i)
	}
	empty := tab.Bytes()
	tab.Push(ids, make([]float32, len(ids)*16), 1)
	full := tab.Bytes()
	payload := int64(len(ids)) * 4 * 33
	require.Less(t, full-empty, payload*3/2)
	require.Greater(t, full-empty, payload)
	few := ids[:100]
	tab.Push(few, make([]float32, len(few)*16), 11)
	expired := 0
	for b := range tab.Blocks() {
		expired += tab.Expire(b, 11)
	}
	require.Equal(t, len(ids)-len(few), expired)
	require.Less(t, tab.Bytes()-empty, int64(len(few))*4*33*4)
	tab.Delete(few)
	require.Less(t, tab.Bytes()-empty, int64(tab.Blocks())*400)
}

// One block may have many more rows than expected.
func TestManyRowsInOneBlock(t *testing.T) {
	const n = 300_000
	tab := newTable(t, table.Config{Name: "x", Rows: 1, Dim: 1, Rule: sgdRule()})
	ids, grads := make([]int64, n), make([]float32, n)
	for i := range ids {
		ids[i], grads[i] = int64(i)*7-1000, float32(i)
	}
	tab.Push(ids, grads, 1)
	require.Equal(t, n, tab.Len(0))
	got := make([]float32, n)
	tab.Pull(ids, got)
	for i := range got {
		grads[i] = -grads[i]
	}
	require.True(t, slices.Equal(grads, got))
	require.Equal(t, n-3, tab.Delete(ids[3:]))
	tab.Pull(ids, got)
	require.Equal(t, []float32{0, -1, -2, 0, 0}, got[:5])
	require.Less(t, tab.Bytes(), int64(10_000))
}

func TestPullDoesNotAllocate(t *testing.T) {
	tab := newTable(t, table.Config{Name: "x", Rows: 1000, Dim: 16, Rule: testRule(16), Init: shard.Initializer{Kind: shard.Normal, Scale: 1}})
	ids := everyID()
	values := make([]float32, len(ids)*16)
	tab.Push(ids[:30], values[:30*16], 1)
	require.Zero(t, testing.AllocsPerRun(10, func() { tab.Pull(ids, values) }))
	require.Zero(t, testing.AllocsPerRun(10, func() { tab.Push(ids[:30], values[:30*16], 1) }))
}

// rowsOf reads all blocks.
func rowsOf(tab *table.Table) []table.Columns {
	all := make([]table.Columns, tab.Blocks())
	for b := range all {
		tab.Copy(b, &all[b])
	}
	return all
}

// copyOf makes another table of the same rows, read in pieces.
func copyOf(t *testing.T, tab *table.Table, c table.Config, piece int) *table.Table {
	t.Helper()
	other := newTable(t, c)
	for b := range tab.Blocks() {
		require.NoError(t, other.SetWaiting(b, tab.AppendWaiting(b, nil)))
		for from := 0; from < tab.Len(b); {
			var columns table.Columns
			tab.Resize(&columns, min(piece, tab.Len(b)-from))
			n := tab.Read(b, from, &columns)
			require.Len(t, columns.IDs, n)
			require.NoError(t, other.Append(b, &columns))
			from += n
		}
	}
	return other
}

func randomGrads(rng *rand.Rand, n int) []float32 {
	grads := make([]float32, n)
	for i := range grads {
		grads[i] = float32(rng.IntN(9) - 4)
	}
	return grads
}

func TestReadAppendIsACopy(t *testing.T) {
	for _, sums := range []bool{false, true} {
		c := table.Config{Name: "x", Rows: 10_000, Dim: 16, Rule: testRule(16), Sums: sums, End: 160_000}
		tab := newTable(t, c)
		rng := rand.New(rand.NewPCG(1, 2))
		ids := everyID()
		for i := range int64(5000) {
			ids = append(ids, i<<20)
		}
		tab.Push(ids, randomGrads(rng, len(ids)*16), 5)
		for b := range tab.Blocks() {
			tab.Close(b)
		}
		tab.Push(ids[:200], randomGrads(rng, 200*16), 7)
		other := copyOf(t, tab, c, 100)
		require.Equal(t, rowsOf(tab), rowsOf(other))
		require.Equal(t, tab.Rows(), other.Rows())
		for b := range tab.Blocks() {
			require.Equal(t, tab.Dirty(b), other.Dirty(b))
			var settled, columns table.Columns
			tab.Copy(b, &settled)
			tab.Settle(&settled)
			tab.Close(b)
			other.Close(b)
			tab.Copy(b, &columns)
			require.Equal(t, columns, settled)
		}
		require.Equal(t, rowsOf(tab), rowsOf(other))
		tab.Clear(0)
		require.Zero(t, tab.Len(0))
		require.Equal(t, tab.Rows(), other.Rows()-int64(other.Len(0)))
	}
}

// What does not fit is refused, and nothing has changed.
func TestHostileAppend(t *testing.T) {
	c := table.Config{Name: "x", Rows: 10_000, Dim: 3, Rule: testRule(3), Sums: true}
	source := newTable(t, c)
	ids := slices.DeleteFunc(everyID(), func(id int64) bool { return source.BlockOf(id) != 0 })
	elsewhere := int64(12)
	one := table.Config{Name: "x", Rows: 1000, Dim: 70_000, Rule: testRule(70_000), Sums: true}
	require.NotZero(t, newTable(t, one).BlockOf(elsewhere))
	source.Push(ids, make([]float32, len(ids)*3), 5)
	spoils := map[string]func(*table.Columns){
		"two of one id":    func(c *table.Columns) { c.IDs[5] = c.IDs[20] },
		"id that is there": func(c *table.Columns) { c.IDs[7] = ids[0] },
		"no states":        func(c *table.Columns) { c.State = nil },
		"few weights":      func(c *table.Columns) { c.Weights = c.Weights[1:] },
		"many weights":     func(c *table.Columns) { c.Weights = append(c.Weights, 1) },
		"few slots":        func(c *table.Columns) { c.Slots = c.Slots[:1] },
		"short slot":       func(c *table.Columns) { c.Slots[1] = c.Slots[1][1:] },
		"no sums":          func(c *table.Columns) { c.Sums = nil },
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			tab := newTable(t, c)
			tab.Push(ids[:1], []float32{1, 2, 3}, 6)
			before := rowsOf(tab)
			var columns table.Columns
			source.Resize(&columns, len(ids)-1)
			source.Read(0, 1, &columns)
			spoil(&columns)
			require.ErrorContains(t, tab.Append(0, &columns), "table: block 0: ")
			require.Equal(t, before, rowsOf(tab))
			require.Equal(t, int64(1), tab.Rows())
			source.Resize(&columns, len(ids)-1)
			source.Read(0, 1, &columns)
			require.NoError(t, tab.Append(0, &columns))
		})
	}
	plain := newTable(t, table.Config{Name: "x", Rows: 1, Dim: 1, Rule: sgdRule()})
	for want, s := range map[string]uint64{"has a sum": 1 << 31, "has taken 3 steps": 3} {
		require.ErrorContains(t, plain.Append(0, &table.Columns{IDs: []int64{1}, State: []uint64{s}, Weights: []float32{1}}), want)
	}
	wide := newTable(t, table.Config{Name: "x", Rows: 1000, Dim: 70_000, Rule: sgdRule()})
	require.ErrorContains(t, wide.Append(0, &table.Columns{IDs: []int64{elsewhere}, State: []uint64{0}, Weights: make([]float32, 70_000)}), "of another block")
}
