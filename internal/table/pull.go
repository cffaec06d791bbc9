package table

import (
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/shard"
)

// group is how many ids are looked up together: the processor waits for the memory of
// many of them at the same time, and what was found stays in cache until it is used.
const group = 64

// found is where an id has its row, if it has one.
type found struct {
	hash  uint64
	block int32
	place place
	none  bool
}

// farBytes is the size from which on rows are not expected in the cache next to the core.
const farBytes = 1 << 20

// locate finds the rows of at most [group] ids and brings the first elems elements of each
// into cache. It goes over the ids several times, so that the processor reads for all of
// them at once: each pass uses what the one before has asked for.
func (t *Table) locate(ids []int64, elems int, at *[group]found) {
	results := at[:len(ids)]
	far := t.rows*int64(t.layout.stride) > farBytes/4
	for i, id := range ids {
		hash := shard.Hash(id)
		b := t.blockOf(hash)
		results[i] = found{hash: hash, block: int32(b)}
		if far {
			kernel.Prefetch(t.blocks[b].segment(hash).home(hash))
		}
	}
	for i := range results {
		f := &results[i]
		b := &t.blocks[f.block]
		if e := b.segment(f.hash).first(f.hash); e == 0 {
			f.none = true
		} else if f.place = e.place(); far {
			kernel.Prefetch(b.row(f.place)[:elems])
		}
	}
	for i, id := range ids {
		f := &results[i]
		if f.none {
			continue
		}
		b := &t.blocks[f.block]
		if b.row(f.place).id() != id {
			p, ok := b.find(id, f.hash)
			f.place, f.none = p, !ok
		}
	}
}

// Pull copies the weights of the rows of ids, one after the other, to dst, which has
// len(ids)*Dim elements. An id without row has the weights that it would begin with. Pull
// changes nothing and allocates nothing.
func (t *Table) Pull(ids []int64, dst []float32) {
	var at [group]found
	for len(ids) > 0 {
		n := min(len(ids), group)
		t.locate(ids[:n], t.layout.values+t.dim, &at)
		for i := range n {
			f := &at[i]
			w := dst[i*t.dim : (i+1)*t.dim]
			if f.none {
				t.initial.fill(w, ids[i])
				continue
			}
			copy(w, t.blocks[f.block].row(f.place)[t.layout.values:])
		}
		ids, dst = ids[n:], dst[n*t.dim:]
	}
}
