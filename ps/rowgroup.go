package ps

import (
	"math/bits"
	"slices"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/shard"
)

// rowGroup is the rows of one operation, each id once, grouped by shard. It is reused.
type rowGroup struct {
	dim int
	// ids and values of each shard's rows lie together, in the order of their first
	// appearance, with room for all that were asked for: behind them is a gap when some came
	// more than once.
	ids          []int64
	values       []float32
	begins, ends []int // by shard, in rows

	at []uint32 // of each id asked for: where its row is, and whether it came before

	hashes []uint64 // of each id asked for
	shards []uint32 // and its shard, by number among those of the layer
	index  []uint32 // hash table of the places in ids, plus one
}

// again marks a place in rowGroup.at that an earlier id has too.
const again = 1 << 31

// lowestHashes is the lowest hash of each shard of a table, in their order.
func lowestHashes(l shard.Layer, shards []shard.Shard) []uint64 {
	hashes := make([]uint64, len(shards))
	for i, s := range shards {
		hashes[i] = shard.LowestHash(s.Range.Begin/int64(l.RowElems()), int64(l.Rows()))
	}
	return hashes
}

// gather groups the ids of a table whose shards begin at the given hashes, and makes room
// for their values.
func (g *rowGroup) gather(ids []int64, dim int, lowest []uint64) {
	g.dim = dim
	g.room(len(ids), len(lowest))
	g.assign(ids, lowest)
	total := 0
	for s, n := range g.ends {
		g.begins[s], g.ends[s] = total, total
		total += n
	}
	g.dedupe(ids)
}

// dedupe gives each id its place, the same to those that are equal.
func (g *rowGroup) dedupe(ids []int64) {
	index, places, at, hashes, shards := g.index, g.ids, g.at[:len(ids)], g.hashes[:len(ids)], g.shards[:len(ids)]
	mask := uint64(len(index) - 1)
	for i, id := range ids {
		slot := hashes[i] & mask
		p := index[slot]
		for p != 0 && places[p-1] != id {
			slot = (slot + 1) & mask
			p = index[slot]
		}
		if p != 0 {
			at[i] = p - 1 | again
			continue
		}
		end := &g.ends[shards[i]]
		p = uint32(*end)
		*end++
		places[p], at[i], index[slot] = id, p, p+1
	}
}

// room makes room for n ids of a table with so many shards.
func (g *rowGroup) room(n, shards int) {
	// At most a quarter full: what costs is to guess wrong whether a slot is taken.
	slots := 1 << bits.Len(uint(4*n-1))
	g.index = slices.Grow(g.index[:0], slots)[:slots]
	clear(g.index)
	g.begins, g.ends = slices.Grow(g.begins[:0], shards)[:shards], slices.Grow(g.ends[:0], shards)[:shards]
	clear(g.ends)
	g.ids, g.at = slices.Grow(g.ids[:0], n)[:n], slices.Grow(g.at[:0], n)[:n]
	g.hashes, g.shards = slices.Grow(g.hashes[:0], n)[:n], slices.Grow(g.shards[:0], n)[:n]
	g.values = slices.Grow(g.values[:0], n*g.dim)[:n*g.dim]
}

// assign finds hash and shard of each id, and counts those of each shard in ends. That is a
// pass of its own: no id has to wait for the one before.
func (g *rowGroup) assign(ids []int64, lowest []uint64) {
	hashes, shards, counts := g.hashes[:len(ids)], g.shards[:len(ids)], g.ends[:len(lowest)]
	for i, id := range ids {
		h := shard.Hash(id)
		s := int(shard.Bucket(h, int64(len(lowest)))) // about: shards are of nearly equal length
		for h < lowest[s] {
			s--
		}
		for s+1 < len(lowest) && h >= lowest[s+1] {
			s++
		}
		hashes[i], shards[i] = h, uint32(s)
		counts[s]++
	}
}

// spread copies the values to where they were asked for.
func (g *rowGroup) spread(dst []float32) {
	dim, values := g.dim, g.values
	for i, p := range g.at {
		copy(dst[i*dim:(i+1)*dim], values[int(p&^again)*dim:])
	}
}

// sum fills the values with gradients: those of equal ids are added.
func (g *rowGroup) sum(grads []float32) {
	dim, values := g.dim, g.values
	for i, p := range g.at {
		grad, dst := grads[i*dim:(i+1)*dim], values[int(p&^again)*dim:][:dim]
		if p&again == 0 {
			copy(dst, grad)
		} else {
			kernel.Add(dst, grad)
		}
	}
}

// bytes is the memory that a group holds.
func (g *rowGroup) bytes() int {
	return 8*(cap(g.ids)+cap(g.begins)+cap(g.ends)+cap(g.hashes)) + 4*(cap(g.values)+cap(g.at)+cap(g.shards)+cap(g.index))
}

const (
	// keptGroups is how many groups a client keeps for later operations on rows, and
	// keptRowsBytes how large each of them may be.
	keptGroups    = 16
	keptRowsBytes = 16 << 20
)

// keep puts a group onto a list for the next operation, unless it is large.
func (g *rowGroup) keep(free freeList[rowGroup]) {
	if g.bytes() <= keptRowsBytes {
		free.put(g)
	}
}
