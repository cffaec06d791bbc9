package table

import (
	"math/bits"

	"github.com/elasticps/elasticps/internal/invariant"
	"github.com/elasticps/elasticps/shard"
)

// Table is the rows of one shard of an embedding table. Its methods may not run at the same
// time, except for those that only read: see the package's documentation. Make one with New.
type Table struct {
	dim      int
	total    int64 // buckets of the whole table
	begin    int64 // of the shard, in elements
	elems    int64 // of the shard
	touches  uint32
	expire   uint32
	maxRows  int64
	evict    Eviction
	rule     Rule
	factor   float64 // of the learning rate
	initial  initial
	layout   layout // of rows
	counters layout // of ids that wait
	filter   int    // bytes of a block's filter, 0 for exact counters
	blocks   []block
	rows     int64
	// blockRows is how many rows a block may have, largest how many one has had.
	blockRows, largest int

	views   [][]float32 // scratch: the slots of the row that is stepped
	missing []int32     // scratch: positions of ids without row in a push
	seen    []uint64    // scratch: blocks that have been visited, a bit each
	keys    []uint64    // scratch: rows that may be evicted
}

// block is the rows of one run of the bucket space, and what goes with them.
type block struct {
	rows
	sums    sums
	coming  int    // rows that a push is about to make, while it makes room
	waiting *rows  // exact counters of ids without row
	filter  filter // or one for all of them
}

// New returns an empty table. The configuration must be valid, see [Config.Validate].
func New(c Config) *Table {
	if invariant.Enabled {
		err := c.Validate()
		invariant.Check(err == nil, "configuration of a table: %v", err)
	}
	t := &Table{
		dim: c.Dim, total: c.Rows, begin: c.Begin, elems: c.End - c.Begin,
		touches: max(c.Admit.Touches, 1), expire: c.ExpireAfter,
		maxRows: c.MaxRows, evict: c.Evict, rule: c.Rule, factor: 1, initial: newInitial(c),
		views: make([][]float32, len(c.Rule.Slots)),
	}
	if t.blockRows = c.BlockRows; t.blockRows == 0 {
		t.blockRows = MaxBlockRows
	}
	values := c.Dim
	for _, s := range c.Rule.Slots {
		values += s.Elems
	}
	t.layout = newLayout(values, c.ExpireAfter > 0 || c.Evict == LeastRecentlyUsed || c.Rule.Steps || c.Sums, c.Sums)
	t.counters = newLayout(0, true, false)
	t.blocks = make([]block, (c.End-c.Begin+BlockElems-1)/BlockElems)
	if c.Admit.FilterBytes > 0 && len(t.blocks) > 0 {
		t.filter = int(max(c.Admit.FilterBytes/int64(len(t.blocks)), minFilterBytes))
	}
	t.seen = make([]uint64, (len(t.blocks)+63)/64)
	none := emptyIndex()
	for i := range t.blocks {
		t.blocks[i] = newBlock(&t.layout, none)
	}
	return t
}

func newBlock(l *layout, index []*segment) block {
	return block{rows: rows{layout: l, dir: index}}
}

// Blocks returns the number of blocks of the shard, which never changes.
func (t *Table) Blocks() int { return len(t.blocks) }

// Len returns the number of rows of a block.
func (t *Table) Len(block int) int { return t.blocks[block].n }

// Rows returns the number of rows of all blocks.
func (t *Table) Rows() int64 { return t.rows }

// Bytes returns the memory that rows, index, counters and sums take, without what the
// allocator adds. It looks at every block.
func (t *Table) Bytes() int64 {
	const blockHeader = 160
	n := int64(len(t.blocks)) * blockHeader
	for i := range t.blocks {
		b := &t.blocks[i]
		n += b.bytes() + b.sums.bytes() + int64(len(b.filter.counts))
		if b.waiting != nil {
			n += b.waiting.bytes()
		}
	}
	return n
}

// BlockOf returns the block that the row of an id is in, whether or not there is one; -1 if the
// id belongs to another shard.
func (t *Table) BlockOf(id int64) int {
	element := t.element(shard.Hash(id))
	if uint64(element) >= uint64(t.elems) {
		return -1
	}
	return int(element >> 16)
}

func (t *Table) blockOf(hash uint64) int { return int(t.element(hash) >> 16) }

// element is where the bucket of a hash begins, counted from the begin of the shard.
func (t *Table) element(hash uint64) int64 {
	bucket, _ := bits.Mul64(hash, uint64(t.total))
	return int64(bucket)*int64(t.dim) - t.begin
}

// Holds reports whether all ids belong to this shard. All methods that take ids need that.
func (t *Table) Holds(ids []int64) bool {
	for _, id := range ids {
		if uint64(t.element(shard.Hash(id))) >= uint64(t.elems) {
			return false
		}
	}
	return true
}

// Has reports whether an id has a row.
func (t *Table) Has(id int64) bool {
	hash := shard.Hash(id)
	_, ok := t.blocks[t.blockOf(hash)].find(id, hash)
	return ok
}
