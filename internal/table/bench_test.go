package table_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/shard"
)

// adagradRule is Adagrad with one accumulator per element.
func adagradRule(dim int) table.Rule {
	return table.Rule{
		Slots: []table.Slot{{Elems: dim, Start: 0.1}},
		Step:  func(w, g []float32, s [][]float32, _ uint64, _ float64) { kernel.Adagrad(w, g, s[0], 0.1, 1e-10, 0) },
	}
}

func adamRule(dim int) table.Rule {
	schedule := kernel.NewAdamSchedule(0.9, 0.999, 1e-8, 0)
	return table.Rule{
		Slots: []table.Slot{{Elems: dim}, {Elems: dim}}, Steps: true,
		Step: func(w, g []float32, s [][]float32, t uint64, _ float64) {
			kernel.Adam(w, g, s[0], s[1], schedule.At(0.001, t))
		},
	}
}

// naive is what one would write first: a map to the rows of a slab.
type naive struct {
	index map[int64]int32
	dim   int
	slab  []float32
}

func (n *naive) pull(ids []int64, dst []float32) {
	for i, id := range ids {
		if row, ok := n.index[id]; ok {
			copy(dst[i*n.dim:(i+1)*n.dim], n.slab[int(row)*n.dim:])
		}
	}
}

// draws is a long list of ids, Zipf-distributed or uniform, to go through in batches.
func draws(rows int, zipf bool) []int64 {
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]int64, 1<<22)
	z := rand.NewZipf(rng, 1.0001, 1, uint64(rows-1))
	for i := range ids {
		if zipf {
			ids[i] = int64(shard.Hash(int64(z.Uint64() % uint64(rows))))
		} else {
			ids[i] = int64(shard.Hash(rng.Int64N(int64(rows))))
		}
	}
	return ids
}

func filled(rows, dim int, rule table.Rule) *table.Table {
	tab := table.New(table.Config{
		Name: "x", Rows: int64(rows), Dim: dim, End: int64(rows) * int64(dim), Rule: rule,
		Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.01},
	})
	ids, grads := make([]int64, 1000), make([]float32, 1000*dim)
	for from := 0; from < rows; from += len(ids) {
		for i := range ids {
			ids[i] = int64(shard.Hash(int64(from + i)))
		}
		tab.Push(ids, grads, 1)
	}
	return tab
}

func distribution(zipf bool) string {
	if zipf {
		return "zipf"
	}
	return "uniform"
}

// BenchmarkRows reports rows per second of one goroutine: pulled, pulled from a Go map and
// a slab, and pushed.
func BenchmarkRows(b *testing.B) {
	for _, rows := range []int{10_000, 1_000_000, 10_000_000} {
		for _, dim := range []int{16, 64} {
			if rows*dim > 200_000_000 || testing.Short() && rows > 1_000_000 {
				continue
			}
			benchmarkPull(b, rows, dim)
			for name, rule := range map[string]table.Rule{"sgd": sgdRule(), "adagrad": adagradRule(dim), "adam": adamRule(dim)} {
				if rows > 1_000_000 && name != "sgd" {
					continue
				}
				benchmarkPush(b, rows, dim, name, rule)
			}
		}
	}
}

func batches(b *testing.B, name string, rows, dim int, run func(ids []int64, values []float32)) {
	for _, zipf := range []bool{false, true} {
		ids := draws(rows, zipf)
		for _, batch := range []int{341, 4096} {
			b.Run(fmt.Sprintf("%s/%d/dim%d/%s/%d", name, rows, dim, distribution(zipf), batch), func(b *testing.B) {
				values, at := make([]float32, batch*dim), 0
				for b.Loop() {
					run(ids[at:at+batch], values)
					if at += batch; at+batch > len(ids) {
						at = 0
					}
				}
				b.ReportMetric(float64(b.N)*float64(batch)/b.Elapsed().Seconds()/1e6, "Mrows/s")
			})
		}
	}
}

func benchmarkPull(b *testing.B, rows, dim int) {
	tab := filled(rows, dim, sgdRule())
	batches(b, "pull", rows, dim, tab.Pull)
	if rows > 1_000_000 {
		return
	}
	n := &naive{index: make(map[int64]int32), dim: dim, slab: make([]float32, rows*dim)}
	for i := range rows {
		n.index[int64(shard.Hash(int64(i)))] = int32(i)
	}
	batches(b, "map", rows, dim, n.pull)
}

func benchmarkPush(b *testing.B, rows, dim int, name string, rule table.Rule) {
	tab := filled(rows, dim, rule)
	batches(b, "push."+name, rows, dim, func(ids []int64, grads []float32) { tab.Push(ids, grads, 1) })
}

// BenchmarkGrowth fills a table row by row, in pushes of 341, and reports what a row takes
// of the heap, as a multiple of its weights and slots, and the longest push.
func BenchmarkGrowth(b *testing.B) {
	const dim, batch = 16, 341
	rows := 10_000_000
	if testing.Short() {
		rows = 1_000_000
	}
	for _, r := range []struct {
		name   string
		rule   table.Rule
		floats int
	}{{"sgd", sgdRule(), dim}, {"adagrad", adagradRule(dim), 2 * dim}, {"adam", adamRule(dim), 3 * dim}} {
		b.Run(fmt.Sprintf("%s/%d", r.name, rows), func(b *testing.B) {
			ids, grads := make([]int64, batch), make([]float32, batch*dim)
			for b.Loop() {
				before := heap()
				tab := table.New(table.Config{Name: "x", Rows: int64(rows), Dim: dim, End: int64(rows * dim), Rule: r.rule})
				var longest time.Duration
				for from := 0; from < rows; from += batch {
					for i := range ids {
						ids[i] = int64(from + i)
					}
					start := time.Now()
					tab.Push(ids, grads, 1)
					longest = max(longest, time.Since(start))
				}
				perRow := float64(heap()-before) / float64(tab.Rows())
				b.ReportMetric(perRow, "B/row")
				b.ReportMetric(perRow/float64(4*r.floats), "x-payload")
				b.ReportMetric(float64(tab.Bytes())/float64(tab.Rows()), "Bytes()/row")
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest-push")
				runtime.KeepAlive(tab)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
