package table_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/shard"
)

// model is a table as a map of rows: what is believed of it.
type model struct {
	c       table.Config
	empty   *table.Table
	rows    map[int64]*modelRow
	waiting map[int64]*modelCounter // exact ones
}

type modelRow struct {
	w     []float32
	slots [][]float32
	steps uint64
	touch uint32
	sum   []float32 // nil without
}

type modelCounter struct{ count, touch uint32 }

func (m *model) first(id int64) *modelRow {
	r := &modelRow{w: make([]float32, m.c.Dim)}
	m.empty.Pull([]int64{id}, r.w)
	for _, s := range m.c.Rule.Slots {
		r.slots = append(r.slots, slices.Repeat([]float32{s.Start}, s.Elems))
	}
	return r
}

func (m *model) step(r *modelRow, g []float32) {
	r.steps++
	m.c.Rule.Step(r.w, g, r.slots, r.steps, 1)
}

// push of an id that is known to get a row, or has one.
func (m *model) push(id int64, g []float32, now uint32) {
	r := m.rows[id]
	if r == nil {
		r = m.first(id)
		m.rows[id] = r
		delete(m.waiting, id)
	}
	r.touch = max(r.touch, now)
	if !m.c.Sums {
		m.step(r, g)
		return
	}
	if r.sum == nil {
		r.sum = make([]float32, m.c.Dim)
	}
	for i := range g {
		r.sum[i] += g[i]
	}
}

// admits counts a touch of an id without row, with exact counters.
func (m *model) admits(id int64, now uint32) bool {
	if m.c.Admit.Touches <= 1 {
		return true
	}
	c := m.waiting[id]
	if c == nil {
		c = &modelCounter{}
		m.waiting[id] = c
	}
	c.count, c.touch = min(c.count+1, m.c.Admit.Touches), max(c.touch, now)
	return c.count >= m.c.Admit.Touches
}

func (m *model) close() {
	for _, r := range m.rows {
		if r.sum != nil {
			m.step(r, r.sum)
			r.sum = nil
		}
	}
}

func (m *model) expire(now uint32) int {
	n := 0
	for id, r := range m.rows {
		if r.sum == nil && now-r.touch >= m.c.ExpireAfter {
			delete(m.rows, id)
			n++
		}
	}
	for id, c := range m.waiting {
		if now-c.touch >= m.c.ExpireAfter {
			delete(m.waiting, id)
		}
	}
	return n
}

// run does operations that rng chooses on a table, on a copy of it that is made anew now and
// then, and on the model, and compares.
type run struct {
	t          *testing.T
	rng        *rand.Rand
	m          *model
	tab, other *table.Table
	ids        []int64
	now        uint32
}

func newRun(t *testing.T, c table.Config, seed uint64) *run {
	c.Name, c.End = "m", c.Rows*int64(c.Dim)
	r := &run{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), tab: newTable(t, c), other: newTable(t, c), ids: everyID(),
		m: &model{c: c, empty: newTable(t, c), rows: make(map[int64]*modelRow), waiting: make(map[int64]*modelCounter)},
	}
	for i := range int64(300) {
		r.ids = append(r.ids, 1000+i*3)
	}
	return r
}

// some returns different ids, in any order.
func (r *run) some() []int64 {
	r.rng.Shuffle(len(r.ids), func(i, j int) { r.ids[i], r.ids[j] = r.ids[j], r.ids[i] })
	return r.ids[:r.rng.IntN(len(r.ids)/2)]
}

func (r *run) operate(n int) {
	for range n {
		r.now += uint32(r.rng.IntN(3))
		switch k := r.rng.IntN(20); {
		case k < 11:
			r.push()
		case k < 13:
			r.closeClock()
		case k < 15 && r.m.c.ExpireAfter > 0:
			r.expire()
		case k < 16:
			r.remove()
		case k < 18:
			r.other = copyOf(r.t, r.tab, r.m.c, 1+r.rng.IntN(100))
		default:
			r.check()
		}
	}
	r.closeClock()
	r.check()
}

func (r *run) push() {
	ids := r.some()
	grads := randomGrads(r.rng, len(ids)*r.m.c.Dim)
	if r.tab.Refuses(ids) {
		require.Equal(r.t, table.Refuse, r.m.c.Evict)
		require.Greater(r.t, r.tab.Rows()+int64(len(ids)), r.m.c.MaxRows)
		return // whoever pushes asks
	}
	before, waiting := rowsOf(r.tab), waitingOf(r.tab)
	touched := make(map[int]bool)
	r.tab.Touched(ids, func(block int) {
		require.False(r.t, touched[block], "visited twice")
		touched[block] = true
	})
	had := make([]bool, len(ids))
	for i, id := range ids {
		had[i] = r.tab.Has(id)
		require.Equal(r.t, r.m.rows[id] != nil, had[i])
	}
	got := r.tab.Push(ids, grads, r.now)
	require.Equal(r.t, got, r.other.Push(ids, grads, r.now))
	changed := make(map[int]bool)
	r.tab.Changed(func(block int) { changed[block] = true })
	require.Equal(r.t, touched, changed)
	for b, c := range rowsOf(r.tab) {
		if !touched[b] {
			require.Equal(r.t, before[b], c, "block %d changed", b)
			require.Equal(r.t, waiting[b], r.tab.AppendWaiting(b, nil), "block %d changed", b)
		}
	}
	require.Equal(r.t, len(ids), got.Applied+got.Waiting+got.Refused)
	if limit := r.m.c.MaxRows; limit > 0 {
		if r.m.c.Evict != table.Refuse {
			limit = max(limit, int64(r.tab.Blocks())) // each may have one
		} else {
			require.Zero(r.t, got.Refused)
			if r.m.c.Admit.FilterBytes > 0 {
				limit += int64(len(ids)) // which have raised each other's counters
			}
		}
		require.LessOrEqual(r.t, r.tab.Rows(), limit)
	}
	r.follow(ids, grads, had, got)
}

// follow lets the model do what the table has done with a push. Which rows are evicted, and
// what a filter admits, are up to the table; everything else is not.
func (r *run) follow(ids []int64, grads []float32, had []bool, got table.Result) {
	rows, waiting := len(r.m.rows), 0
	dim := r.m.c.Dim
	for i, id := range ids {
		g := grads[i*dim : (i+1)*dim]
		switch {
		case had[i]:
			r.m.push(id, g, r.now)
		case r.m.c.Admit.FilterBytes > 0:
			if r.tab.Has(id) {
				r.m.push(id, g, r.now)
			} else {
				waiting++
			}
		case r.m.admits(id, r.now):
			if r.tab.Has(id) {
				r.m.push(id, g, r.now)
			} else {
				require.Positive(r.t, got.Refused)
			}
		default:
			waiting++
			require.False(r.t, r.tab.Has(id))
		}
	}
	if r.m.c.Admit.FilterBytes > 0 {
		waiting -= got.Refused // by what it has done, it does not say which
	}
	require.Equal(r.t, got.Waiting, waiting)
	created := len(r.m.rows) - rows
	evicted := 0
	for id := range r.m.rows {
		if !r.tab.Has(id) {
			require.Nil(r.t, r.m.rows[id].sum, "a row with a sum was evicted")
			delete(r.m.rows, id)
			evicted++
		}
	}
	require.Equal(r.t, got.Evicted, evicted, "created %d", created)
}

func (r *run) closeClock() {
	for b := range r.tab.Blocks() {
		r.tab.Close(b)
		r.other.Close(b)
		require.Zero(r.t, r.tab.Dirty(b))
	}
	r.m.close()
}

func (r *run) expire() {
	expired := 0
	for b := range r.tab.Blocks() {
		n := r.tab.Expire(b, r.now)
		require.Equal(r.t, n, r.other.Expire(b, r.now))
		expired += n
	}
	require.Equal(r.t, r.m.expire(r.now), expired)
}

func (r *run) remove() {
	ids, n := r.some(), 0
	ids = ids[:len(ids)/4]
	for _, id := range ids {
		if r.m.rows[id] != nil {
			n++
			delete(r.m.rows, id)
		}
		delete(r.m.waiting, id)
	}
	require.Equal(r.t, n, r.tab.Delete(ids))
	require.Equal(r.t, n, r.other.Delete(ids))
}

// check compares table and copy, bit for bit, and table and model.
func (r *run) check() {
	all := rowsOf(r.tab)
	require.Equal(r.t, all, rowsOf(r.other))
	require.Equal(r.t, waitingOf(r.tab), waitingOf(r.other))
	require.Equal(r.t, int64(len(r.m.rows)), r.tab.Rows())
	dim := r.m.c.Dim
	for b, c := range all {
		require.Equal(r.t, r.tab.Len(b), len(c.IDs))
		for i, id := range c.IDs {
			require.Equal(r.t, b, r.tab.BlockOf(id))
			want := r.m.rows[id]
			require.NotNil(r.t, want, "id %d", id)
			require.Equal(r.t, want.w, c.Weights[i*dim:(i+1)*dim])
			for k, s := range want.slots {
				require.Equal(r.t, s, c.Slots[k][i*len(s):(i+1)*len(s)])
			}
			state := uint64(want.touch)<<32 | want.steps
			if want.sum != nil {
				state |= 1 << 31
				require.Equal(r.t, want.sum, c.Sums[i*dim:(i+1)*dim])
			}
			require.Equal(r.t, state, c.State[i])
		}
	}
	r.checkPull()
	if r.m.c.Admit.FilterBytes == 0 {
		r.checkWaiting()
	}
}

func (r *run) checkPull() {
	dim := r.m.c.Dim
	got := make([]float32, len(r.ids)*dim)
	r.tab.Pull(r.ids, got)
	for i, id := range r.ids {
		want := r.m.rows[id]
		if want == nil {
			want = r.m.first(id)
		}
		require.Equal(r.t, want.w, got[i*dim:(i+1)*dim])
	}
}

func (r *run) checkWaiting() {
	n := 0
	for b, src := range waitingOf(r.tab) {
		require.Equal(r.t, len(src), r.tab.WaitingBytes(b))
		for ; len(src) > 0; src = src[16:] {
			want := r.m.waiting[int64(binary.LittleEndian.Uint64(src))]
			require.NotNil(r.t, want)
			require.Equal(r.t, *want, modelCounter{binary.LittleEndian.Uint32(src[8:]), binary.LittleEndian.Uint32(src[12:])})
			n++
		}
	}
	require.Len(r.t, r.m.waiting, n)
}

func waitingOf(tab *table.Table) [][]byte {
	all := make([][]byte, tab.Blocks())
	for b := range all {
		all[b] = tab.AppendWaiting(b, nil)
	}
	return all
}

// configs are the corners of what a table may be.
func configs() map[string]table.Config {
	uniform := shard.Initializer{Kind: shard.Uniform, Scale: 1, Seed: 5}
	all := make(map[string]table.Config)
	for _, sums := range []bool{false, true} {
		with := fmt.Sprintf(" sums %v", sums)
		c := table.Config{Rows: 1 << 15, Dim: 7, Rule: testRule(7), Init: uniform, Sums: sums}
		all["plain"+with] = c
		c.ExpireAfter = 5
		all["expiry"+with] = c
		c.Admit.Touches = 3
		all["admission"+with] = c
		c.Admit.FilterBytes = 1 << 10
		all["filter"+with] = c
		c.Admit.FilterBytes, c.MaxRows = 0, 100
		all["refuse"+with] = c
		c.Evict = table.LowestNorm
		all["norm"+with] = c
		c.Admit.Touches, c.Evict = 1, table.LeastRecentlyUsed
		all["recent"+with] = c
		c.Rows, c.Dim, c.Rule = 100, 70_000, testRule(70_000)
		c.MaxRows, c.Evict = 20, table.LeastRecentlyUsed
		all["wide"+with] = c
	}
	return all
}

func TestAgainstModel(t *testing.T) {
	for name, c := range configs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeds, operations := 4, 50
			if testing.Short() {
				seeds, operations = 1, 25
			}
			if c.Dim > 1000 {
				if testing.Short() {
					t.Skip("compares large rows")
				}
				seeds, operations = 1, 6
			}
			for seed := range uint64(seeds) {
				newRun(t, c, seed).operate(operations)
			}
		})
	}
}

// FuzzAgainstModel lets the fuzzer choose configuration and seed.
func FuzzAgainstModel(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(1), uint8(2), uint8(40), uint8(1), true, false)
	f.Fuzz(func(t *testing.T, seed uint64, dim, touches, expire, maxRows, evict uint8, sums, filter bool) {
		d := int(dim%20) + 1
		c := table.Config{
			Rows: 1 + int64(seed%(1<<16)), Dim: d, Rule: testRule(d), Sums: sums,
			Admit: table.Admission{Touches: uint32(touches % 4)}, ExpireAfter: uint32(expire % 8),
			MaxRows: int64(maxRows), Evict: table.Eviction(evict % 3),
		}
		if filter {
			c.Admit.FilterBytes = 1000
		}
		newRun(t, c, seed).operate(15)
	})
}

// A push makes room for all its rows before it makes one, and takes from other blocks what
// their own do not have.
func TestEvictionOrder(t *testing.T) {
	for _, evict := range []table.Eviction{table.LeastRecentlyUsed, table.LowestNorm} {
		tab := newTable(t, table.Config{Name: "x", Rows: 1 << 10, Dim: 1, Rule: sgdRule(), MaxRows: 32, Evict: evict})
		for i := range int64(32) {
			tab.Push([]int64{i}, []float32{-float32(i + 1)}, uint32(i))
		}
		require.Equal(t, table.Result{Applied: 1, Evicted: 2}, tab.Push([]int64{100}, []float32{50}, 40))
		for i := range int64(32) {
			require.Equal(t, i >= 2, tab.Has(i), "%v: id %d", evict, i)
		}
		require.Equal(t, int64(31), tab.Rows())
		many := make([]int64, 40)
		for i := range many {
			many[i] = 200 + int64(i)
		}
		got := tab.Push(many, make([]float32, 40), 50)
		require.Equal(t, table.Result{Applied: 32, Refused: 8, Evicted: 31}, got)
		require.Equal(t, int64(32), tab.Rows())
	}
}

// An id that is there twice in one push is stepped twice, also when it is new.
func TestRepeatedIDs(t *testing.T) {
	for _, touches := range []uint32{1, 2, 3} {
		tab := newTable(t, table.Config{Name: "x", Rows: 10, Dim: 1, Rule: sgdRule(), Admit: table.Admission{Touches: touches}})
		got := tab.Push([]int64{4, 4, 4}, []float32{1, 2, 4}, 1)
		require.Equal(t, table.Result{Applied: 4 - int(touches), Waiting: int(touches) - 1}, got)
		w := make([]float32, 1)
		tab.Pull([]int64{4}, w)
		require.Equal(t, []float32{[]float32{-7, -6, -4}[touches-1]}, w)
		require.Empty(t, tab.AppendWaiting(0, nil))
	}
}
