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
// and how many. The zero value keeps a row for every id that was pushed to, for ever, and
// refuses gradients that are not finite.
//
// A row is touched by a push, never by a pull. What the servers count and when a row was
// touched is part of the state: it moves, is replicated and saved with the rows.
type Table struct {
	// AdmitAfter is how many pushes of an id it takes until it has a row: that push is the
	// first one to change something, the gradients before are dropped. Zero and one: the
	// first push. At most MaxAdmitAfter.
	AdmitAfter uint32
	// FilterBytes is the size of counting Bloom filters (Fan et al., IEEE/ACM ToN 2000) that
	// count the ids which have no row yet, over all servers. They forget nothing and may
	// take one id for another, so that some are admitted early. Zero: exact counters, which
	// take memory for each id.
	FilterBytes int64
	// ExpireAfter is how long a row lives without a push, within about an eighth of that or
	// a second. Whole seconds; zero: for ever.
	ExpireAfter time.Duration
	// ExpireClocks is how many clocks a row lives without a push, instead of ExpireAfter. A
	// shard of the table knows the clock from the pushes that it gets, the highest one of any
	// worker: under every mode, nothing expires in a shard while nobody pushes to one of its
	// rows. Zero: for ever.
	ExpireClocks uint32
	// MaxRows is how many rows the table has at most; each shard has its share of it by
	// the hash values that it has, and with EvictOldest and EvictSmallest each block of a shard
	// (BlockElems elements of the expected rows), which makes one row per shard or block the
	// least. With FilterBytes and RefuseRows a push may go over it, by ids that raise each
	// other's counters. Zero: no limit but that of a block, 8,388,608 rows and some 850 MiB,
	// beyond which RefuseRows refuses: it is reached when far more rows come than
	// Layer.Shape expects. A row takes about 16 bytes besides its values and slots.
	MaxRows int64
	// Evict is what happens to a push of an id without row when there are MaxRows.
	Evict Eviction
	// NonFinite is what happens to gradients that are not finite.
	NonFinite NonFinite
	// Clip bounds the absolute value of each element of a gradient. Required by
	// ClipNonFinite, and of no use else.
	Clip float32
	// Staleness bounds how many clocks a worker that pulls rows may be ahead of the slowest
	// one, under ASP or SSP. Zero: as the job's Consistency says.
	Staleness uint32
}

// MaxAdmitAfter is the largest Table.AdmitAfter.
const MaxAdmitAfter = 255

// Eviction says which row makes room for another one.
type Eviction uint8

// What happens when a table is full. When no row can go, because all of a block have been
// pushed to in the open clock (BSP) or in the same push, the gradients of others are left
// out and counted in TableStatus.Refused.
const (
	// RefuseRows fails pushes of ids without row with ErrTableFull; the frame that has such
	// an id changes nothing.
	RefuseRows Eviction = iota
	// EvictOldest removes rows that were not touched for the longest time, among those of
	// nearby hash values.
	EvictOldest
	// EvictSmallest removes rows with the smallest L2 norm, among those of nearby hash values.
	EvictSmallest
)

// NonFinite says what is done about NaN and infinities in gradients of rows.
type NonFinite uint8

// What happens to gradients that are not finite.
const (
	// RejectNonFinite fails the push with ErrNotFinite; the frame that has one changes
	// nothing.
	RejectNonFinite NonFinite = iota
	// SkipNonFinite leaves the rows out whose gradient is not finite, and counts them in
	// TableStatus.NotFinite.
	SkipNonFinite
	// ClipNonFinite limits every element to [-Clip, Clip], infinities too, and leaves out
	// and counts rows that have a NaN.
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
