package ps

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"

	"github.com/elasticps/elasticps/shard"
)

// Dataset is what the workers of a job train on: a sequence of records, cut into ranges
// that are handed out to whichever worker asks next (Worker.NextRange). The records
// themselves are the workers' business; a record is a number here.
type Dataset struct {
	// Name distinguishes the datasets of a job. Required, at most 128 bytes.
	Name string
	// Records is how many there are. Zero: an empty dataset, which ends at once.
	Records int64
	// RangeRecords is the length of a range; the last one may be shorter. A worker that
	// dies costs the work on its ranges, and each range costs the coordinator two
	// messages and a part of a write to the store: a range that a worker has for about a
	// second is a good choice. Zero: 4096.
	RangeRecords int64
	// Epochs is how often each record is trained on. Zero: 1.
	Epochs int
	// Shuffle hands the ranges out in another order in each epoch, and says for each range
	// in which order its records are to be read (RecordRange.Records). Both orders follow
	// from Seed. Records of different ranges are not mixed within a range.
	Shuffle bool
	// Seed is that of the orders.
	Seed uint64
	// EpochBarrier holds the ranges of an epoch back until all of the one before are
	// finished. Without it they follow at once, so that nobody waits for the slowest
	// worker, and two epochs overlap by the ranges that are under way.
	EpochBarrier bool
}

const (
	// MaxDatasets is the largest number of datasets of a job.
	MaxDatasets = 16
	// MaxRanges is the largest number of ranges of a dataset, counted over all epochs.
	MaxRanges = 1 << 62

	defaultRangeRecords = 4096
)

// RecordRange is one range of the records of a dataset, to be trained on once.
type RecordRange struct {
	// Dataset is the name of the dataset.
	Dataset string
	// Epoch counts from 0.
	Epoch int
	// Begin and End are the records [Begin, End).
	Begin, End int64
	// Seed is that of the order in which Records goes through them. Zero: ascending.
	Seed uint64
	// Position is the place of the range in the order in which ranges are first handed
	// out, over all epochs.
	Position int64
}

// DatasetStatus is how far the workers are with a dataset, in numbers of ranges unless it
// says otherwise.
type DatasetStatus struct {
	// Name is that of the dataset.
	Name string
	// Epoch is that of the range that is handed out next, or the last one; from 0.
	Epoch int
	// Ranges is how many there are over all epochs; Finished of them are.
	Ranges, Finished int64
	// Outstanding are those that workers have, or may have that have not come back to this
	// coordinator yet.
	Outstanding int
	// Returned are those that have come back from workers that are gone, and are handed out
	// next.
	Returned int
}

func (d Dataset) withDefaults() Dataset {
	if d.RangeRecords == 0 {
		d.RangeRecords = defaultRangeRecords
	}
	if d.Epochs == 0 {
		d.Epochs = 1
	}
	return d
}

// validate is for a dataset with defaults.
func (d Dataset) validate() error {
	var errs []error
	if n := len(d.Name); n == 0 || n > maxNameBytes {
		errs = append(errs, fmt.Errorf("ps: dataset name of %d bytes, must have 1 to %d", n, maxNameBytes))
	}
	if d.Records < 0 || d.RangeRecords < 1 || d.Epochs < 1 {
		errs = append(errs, fmt.Errorf("ps: dataset %q: Records %d, RangeRecords %d and Epochs %d, must be at least 0",
			d.Name, d.Records, d.RangeRecords, d.Epochs))
	} else if hi, lo := bits.Mul64(uint64(d.ranges()), uint64(d.Epochs)); hi > 0 || lo > MaxRanges {
		errs = append(errs, fmt.Errorf("ps: dataset %q: %d ranges in each of %d epochs, at most %d in all",
			d.Name, d.ranges(), d.Epochs, int64(MaxRanges)))
	}
	return errors.Join(errs...)
}

// validateDatasets looks at all datasets of a job.
func validateDatasets(all []Dataset) error {
	var errs []error
	if len(all) > MaxDatasets {
		errs = append(errs, fmt.Errorf("ps: %d Datasets, at most %d", len(all), MaxDatasets))
	}
	names := map[string]bool{}
	for _, d := range all {
		errs = append(errs, d.validate())
		if names[d.Name] {
			errs = append(errs, fmt.Errorf("ps: two datasets named %q", d.Name))
		}
		names[d.Name] = true
	}
	return errors.Join(errs...)
}

// ranges is the number of ranges of one epoch.
func (d Dataset) ranges() int64 {
	n := d.Records / d.RangeRecords
	if d.Records%d.RangeRecords > 0 {
		n++
	}
	return n
}

// positions is the number of ranges of all epochs.
func (d Dataset) positions() int64 { return d.ranges() * int64(d.Epochs) }

// at is the range at a position below positions.
func (d Dataset) at(position int64) RecordRange {
	n := d.ranges()
	epoch, i := position/n, position%n
	r := RecordRange{Dataset: d.Name, Epoch: int(epoch), Position: position}
	key := mix(d.Seed, uint64(epoch))
	if d.Shuffle {
		i = int64(permute(uint64(i), uint64(n), key))
	}
	r.Begin = i * d.RangeRecords
	r.End = r.Begin + min(d.RangeRecords, d.Records-r.Begin)
	if d.Shuffle {
		r.Seed = mix(key, uint64(r.Begin)) | 1
	}
	return r
}

// Records yields the numbers of the records of the range, each once, in the order in which
// they are to be read: ascending, or in a shuffled dataset in one that follows from its
// seed, the epoch and the range. It needs no memory in proportion to the range.
func (r RecordRange) Records() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		n := r.End - r.Begin
		for i := range n {
			if r.Seed != 0 {
				i = int64(permute(uint64(i), uint64(n), r.Seed))
			}
			if !yield(r.Begin + i) {
				return
			}
		}
	}
}

// mix makes one key of two.
func mix(a, b uint64) uint64 { return shard.Hash(int64(a ^ shard.Hash(int64(b)))) }

// permuteRounds is twice what makes a Feistel network with random functions look random.
const permuteRounds = 8

// permute is where x goes in a permutation of [0, n) that follows from key: a Feistel
// network over the next power of four, gone through until it ends below n, four times on
// average at most (Luby and Rackoff, SIAM J. Comput. 17(2), 1988; Black and Rogaway,
// Ciphers with Arbitrary Finite Domains, CT-RSA 2002).
func permute(x, n, key uint64) uint64 {
	half := (bits.Len64(n-1) + 1) / 2
	mask := uint64(1)<<half - 1
	for {
		left, right := x>>half, x&mask
		for round := range uint64(permuteRounds) {
			left, right = right, left^mix(key+round, right)&mask
		}
		if x = left<<half | right; x < n {
			return x
		}
	}
}
