package table

import (
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/shard"
)

// group is how many ids are looked up together: the processor waits for the memory of
// many of them at the same time, and what was found stays in cache until it is used.
const group = 64

// found is where the row of an id may be.
type found struct {
	hash  uint64
	block int32
	place place // nowhere, or of the first row with the right tag
}

// nowhere is the place of a row that does not exist.
const nowhere = ^place(0)

// farBytes is the size of all rows from which on they are not expected to be in the cache
// next to the core.
const farBytes = 1 << 20

// locate says where the rows of at most [group] ids may be and has the first elems elements of
// each brought into cache. With many rows it goes over the ids twice, so that the processor
// reads for all of them at once: the second pass uses what the first has asked for.
func (t *Table) locate(ids []int64, elems int, at *[group]found) {
	results := at[:len(ids)]
	far := t.rows*int64(t.layout.stride) > farBytes/4
	for i, id := range ids {
		hash := shard.Hash(id)
		b := t.blockOf(hash)
		s := t.blocks[b].segment(hash)
		results[i].hash, results[i].block = hash, int32(b)
		if far {
			kernel.Prefetch(s.home(hash))
		} else {
			results[i].place = s.first(hash)
		}
	}
	if !far {
		return
	}
	for i := range results {
		f := &results[i]
		b := &t.blocks[f.block]
		if f.place = b.segment(f.hash).first(f.hash); f.place != nowhere {
			kernel.Prefetch(b.row(f.place)[:elems])
		}
	}
}

// confirm returns the row of an id that locate has said something of, nil if it has none,
// and puts its place right.
func (b *block) confirm(f *found, id int64) row {
	if f.place == nowhere {
		return nil
	}
	if r := b.row(f.place); r.id() == id {
		return r
	}
	return b.search(f, id)
}

// search is the rare part of confirm: another row has the same tag.
func (b *block) search(f *found, id int64) row {
	if p, ok := b.find(id, f.hash); ok {
		f.place = p
		return b.row(p)
	}
	f.place = nowhere
	return nil
}

// Pull copies the weights of the rows of ids, one after the other, to dst, which has
// len(ids)*Dim elements. An id without row has the weights that it would begin with. Pull
// changes nothing and allocates nothing.
func (t *Table) Pull(ids []int64, dst []float32) {
	var at [group]found
	dim, begin := t.dim, t.layout.values
	for len(ids) > 0 {
		n := min(len(ids), group)
		t.locate(ids[:n], begin+dim, &at)
		for i, id := range ids[:n] {
			f := &at[i]
			if r := t.blocks[f.block].confirm(f, id); r != nil {
				copy(dst[:dim], r[begin:])
			} else {
				t.initial.fill(dst[:dim], id)
			}
			dst = dst[dim:]
		}
		ids = ids[n:]
	}
}
