package ps

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// Table says how a job keeps one table, a sparse layer: which ids get a row, for how long,
// and how many rows there may be. The zero value keeps a row forever for every id that was
// pushed to, and rejects gradients that are not finite.
//
// A row is touched by a push, never by a pull. Counters and the times of the last touch are
// part of the table's state: they are moved, replicated and saved with the rows.
type Table struct {
	// AdmitAfter is the number of pushes to an id after which it gets a row. The last of them
	// is applied to the new row; the gradients before are dropped. Zero and one: the first
	// push. At most MaxAdmitAfter.
	AdmitAfter uint32
	// FilterBytes is the size, over all servers, of counting Bloom filters (Fan et al., IEEE/ACM
	// ToN 2000) that count the pushes to ids without a row. They never forget and may take one
	// id for another, so that some ids are admitted early. Zero: exact counters, whose memory
	// grows with the number of such ids.
	FilterBytes int64
	// ExpireAfter is the time after which a row without a push is removed, later by at most an
	// eighth of it or a second. Whole seconds. Zero: never.
	ExpireAfter time.Duration
	// ExpireClocks is the number of clocks after which a row without a push is removed, instead
	// of ExpireAfter. A shard learns the clock from the pushes that it gets: it is the highest
	// one of any worker, and nothing expires in a shard that gets no pushes. Zero: never.
	ExpireClocks uint32
	// MaxRows limits the number of rows of the table. It is divided among the shards by their
	// part of the hash values, and with EvictOldest and EvictSmallest among the blocks of a shard
	// (BlockElems elements of the expected rows); it must be at least one for each shard or
	// block. With FilterBytes and RefuseRows one push may exceed it, by ids that share counters.
	//
	// Zero: only a block is limited, to 8,388,608 rows and about 850 MiB, beyond which RefuseRows
	// refuses. That is reached if there are far more rows than Layer.Shape says. A row takes
	// about 16 bytes besides its values and optimizer slots.
	MaxRows int64
	// Evict says what happens to a push to an id without a row when MaxRows is reached.
	Evict Eviction
	// NonFinite says what happens to gradients that are not finite.
	NonFinite NonFinite
	// Clip limits the absolute value of each element of a gradient. Required with
	// ClipNonFinite, and not allowed otherwise.
	Clip float32
	// Staleness is the number of clocks that a worker may be ahead of the slowest one when it
	// pulls rows, under ASP or SSP. Zero: as the job's Consistency says.
	Staleness uint32
}

// MaxAdmitAfter is the largest Table.AdmitAfter.
const MaxAdmitAfter = 255

// Eviction says which row makes room for another one.
type Eviction uint8

// What happens when a table is full. A row that was pushed to in the open clock (BSP), or by
// the same push, is not evicted. If there is no other one in the block, the gradient of the new
// row is dropped and counted in TableStatus.Refused.
const (
	// RefuseRows fails a push to an id without a row with ErrTableFull. Nothing of the frame
	// that has such an id is applied.
	RefuseRows Eviction = iota
	// EvictOldest removes the rows that were not touched for the longest time: one in 16 of
	// the rows of a block, which have nearby hash values, or of 4096 of them.
	EvictOldest
	// EvictSmallest removes the rows with the smallest L2 norm, of as many.
	EvictSmallest
)

// NonFinite says what is done about NaN and infinities in gradients of rows.
type NonFinite uint8

// What happens to gradients that are not finite.
const (
	// RejectNonFinite fails the push with ErrNotFinite. Nothing of the frame that has such a
	// gradient is applied.
	RejectNonFinite NonFinite = iota
	// SkipNonFinite drops the gradients of rows that are not finite, and counts them in
	// TableStatus.NotFinite.
	SkipNonFinite
	// ClipNonFinite limits every element to [-Clip, Clip], infinities too. Gradients of rows
	// that have a NaN are dropped and counted in TableStatus.NotFinite.
	ClipNonFinite
)

// expiry is how long a row lives without a push, in seconds or clocks; 0 for ever.
func (t Table) expiry() uint32 {
	if t.ExpireClocks > 0 {
		return t.ExpireClocks
	}
	return uint32(t.ExpireAfter / time.Second)
}

func (e Eviction) policy() table.Eviction {
	return [...]table.Eviction{RefuseRows: table.Refuse, EvictOldest: table.LeastRecentlyUsed, EvictSmallest: table.LowestNorm}[e]
}

// validate reports every fault of the options of one table.
func (t Table) validate(c Consistency) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ps: "+format, args...)) }
	if t.AdmitAfter > MaxAdmitAfter {
		fault("AdmitAfter %d, at most %d", t.AdmitAfter, MaxAdmitAfter)
	}
	if t.FilterBytes < 0 || t.MaxRows < 0 {
		fault("FilterBytes %d and MaxRows %d, must be at least 0", t.FilterBytes, t.MaxRows)
	}
	if t.ExpireAfter < 0 || t.ExpireAfter%time.Second != 0 || t.ExpireAfter > math.MaxInt32*time.Second {
		fault("ExpireAfter %v, must be whole seconds, at least 0 and at most %v", t.ExpireAfter, math.MaxInt32*time.Second)
	}
	if t.ExpireAfter > 0 && t.ExpireClocks > 0 {
		fault("ExpireAfter %v and ExpireClocks %d, at most one of them", t.ExpireAfter, t.ExpireClocks)
	}
	if t.Evict > EvictSmallest || t.NonFinite > ClipNonFinite {
		fault("Evict %d and NonFinite %d, at most %d and %d", t.Evict, t.NonFinite, EvictSmallest, ClipNonFinite)
	}
	if clip := t.NonFinite == ClipNonFinite; clip != (t.Clip > 0) || math.IsInf(float64(t.Clip), 0) || t.Clip != t.Clip {
		fault("Clip %v, must be finite, above 0 with ClipNonFinite and 0 else", t.Clip)
	}
	if t.Staleness > 0 && c.Mode == BSP {
		fault("Staleness %d, must be 0 under %v", t.Staleness, c.Mode)
	}
	if c.Mode == SSP && t.Staleness > c.Staleness {
		fault("Staleness %d, at most the %d of %v", t.Staleness, c.Staleness, c.Mode)
	}
	return errors.Join(errs...)
}

// checkShares says whether each shard of a table, and with eviction each block, may have a
// row, and whether filters fit a checkpoint.
func (t Table) checkShares(l shard.Layer, parts []shard.Shard) error {
	blocks := int64(0)
	for _, s := range parts {
		blocks += (s.Range.Elems() + BlockElems - 1) / BlockElems
	}
	var errs []error
	if t.MaxRows > 0 && t.Evict == RefuseRows && t.MaxRows < int64(len(parts)) {
		errs = append(errs, fmt.Errorf("ps: table %q: MaxRows %d, at least %d for as many shards of %d expected rows", l.Name, t.MaxRows, len(parts), l.Rows()))
	}
	if t.MaxRows > 0 && t.Evict != RefuseRows && t.MaxRows < blocks {
		errs = append(errs, fmt.Errorf("ps: table %q: MaxRows %d with eviction, at least %d for as many blocks of %d expected rows", l.Name, t.MaxRows, blocks, l.Rows()))
	}
	if t.FilterBytes/maxFilterBytes > blocks {
		errs = append(errs, fmt.Errorf("ps: table %q: FilterBytes %d, at most %d for %d blocks of %d expected rows", l.Name, t.FilterBytes, maxFilterBytes*blocks, blocks, l.Rows()))
	}
	return errors.Join(errs...)
}

// checkRow says whether one row of a table, with all its state, fits a frame.
func (j Job) checkRow(l shard.Layer) error {
	rule := j.optimizer(l.Name).rowRule(l.RowElems())
	if n := rowBytes(l.RowElems(), rule, j.Consistency.Mode == BSP); n > wire.MaxPayload {
		return fmt.Errorf("ps: a row of table %q takes %d bytes with its state, at most %d", l.Name, n, wire.MaxPayload)
	}
	return nil
}
