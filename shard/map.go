package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrInvalidMap is wrapped by every fault that Map.Validate reports.
var ErrInvalidMap = errors.New("shard: invalid map")

// MaxServerIDBytes is the longest name of a server, in bytes.
const MaxServerIDBytes = 255

// Range is a run of elements of one layer, [Begin, End), counted from 0 in
// row-major order. Layer is the index within Model.Layers.
type Range struct {
	Layer      int
	Begin, End int64
}

// Elems is the number of elements of the range.
func (r Range) Elems() int64 { return r.End - r.Begin }

// Shard is one piece of a model: one range of one layer. Its index in the
// slice that Partition returns equals its ID.
type Shard struct {
	ID    ID
	Range Range
	DType DType
}

// Bytes is the size of the shard's parameters in bytes, without optimizer
// slots.
func (s Shard) Bytes() int64 { return s.Range.Elems() * s.DType.Size() }

// Assignment says who owns one shard, and since which epoch. An empty Owner
// means that the shard is unplaced.
type Assignment struct {
	Shard ID
	Epoch Epoch
	Owner ServerID
	// Attempt counts the moves begun of this shard. It tells the messages of
	// this move from late ones of an earlier move that was aborted at the
	// same epoch.
	Attempt uint64
}

// SameOwner says whether two assignments of a shard name the same owner at the same epoch.
func (a Assignment) SameOwner(b Assignment) bool { return a.Owner == b.Owner && a.Epoch == b.Epoch }

// Map says who owns what: one assignment per shard, sorted by shard ID.
// Version grows with each change of an owner. A Map is a value; Clone before
// changing one that others may read. The zero value is the map of no shards.
type Map struct {
	Version     uint64
	Assignments []Assignment
}

// MapOf makes a map of assignments in any order, which it copies. Its version
// is the sum of the epochs: epochs only grow and no shard is ever removed, so
// the version grows with each change of an owner and needs no counter of its
// own in the store.
func MapOf(assignments []Assignment) Map {
	m := Map{Assignments: slices.Clone(assignments)}
	slices.SortFunc(m.Assignments, func(a, b Assignment) int { return cmp.Compare(a.Shard, b.Shard) })
	for _, a := range m.Assignments {
		m.Version += uint64(a.Epoch)
	}
	return m
}

// Clone returns a copy that shares nothing with m.
func (m Map) Clone() Map {
	return Map{Version: m.Version, Assignments: slices.Clone(m.Assignments)}
}

func (m Map) find(id ID) (int, bool) {
	return slices.BinarySearchFunc(m.Assignments, id, func(a Assignment, id ID) int { return cmp.Compare(a.Shard, id) })
}

// Owner returns the assignment of a shard, false if the map does not hold it.
func (m Map) Owner(id ID) (Assignment, bool) {
	i, ok := m.find(id)
	if !ok {
		return Assignment{}, false
	}
	return m.Assignments[i], true
}

// Of returns the IDs of the shards that a server owns, ascending.
func (m Map) Of(server ServerID) []ID {
	var ids []ID
	for _, a := range m.Assignments {
		if a.Owner == server {
			ids = append(ids, a.Shard)
		}
	}
	return ids
}

// WithOwner returns a map in which the shard belongs to owner at the next
// epoch; m is unchanged. An empty owner unplaces the shard and keeps the
// epoch. A shard that the map does not hold gives an error that wraps
// ErrInvalidMap.
func (m Map) WithOwner(id ID, owner ServerID) (Map, error) {
	i, ok := m.find(id)
	if !ok {
		return m, fmt.Errorf("%w: shard %d is not in it", ErrInvalidMap, id)
	}
	next := m.Clone()
	next.Version++
	next.Assignments[i].Owner = owner
	if owner != "" {
		next.Assignments[i].Epoch++
	}
	return next, nil
}

// Validate reports every fault of the map at once, joined; each wraps
// ErrInvalidMap. numShards is the number of shards of the job: a valid map
// holds each ID below it exactly once, in order.
func (m Map) Validate(numShards int) error {
	var errs []error
	if len(m.Assignments) != numShards {
		errs = append(errs, fmt.Errorf("%w: %d assignments for %d shards", ErrInvalidMap, len(m.Assignments), numShards))
	}
	for i, a := range m.Assignments {
		switch {
		case a.Shard != ID(i):
			errs = append(errs, fmt.Errorf("%w: position %d holds shard %d", ErrInvalidMap, i, a.Shard))
		case a.Owner != "" && a.Epoch == 0:
			errs = append(errs, fmt.Errorf("%w: shard %d has owner %.64q at epoch 0, first is 1", ErrInvalidMap, a.Shard, a.Owner))
		case len(a.Owner) > MaxServerIDBytes:
			errs = append(errs, fmt.Errorf("%w: shard %d has an owner name of %d bytes, limit %d", ErrInvalidMap, a.Shard, len(a.Owner), MaxServerIDBytes))
		}
		if len(errs) > 16 {
			break
		}
	}
	return errors.Join(errs...)
}
