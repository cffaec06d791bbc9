package shard

import (
	"math/bits"

	"github.com/elasticps/elasticps/internal/kernel"
)

// Hash spreads the ids of rows over 64 bits: every id has a value of its own, and ids
// that are close to each other, or differ in their high bits alone, are far apart. It
// is the first output of SplitMix64 with the id as its state.
func Hash(id int64) uint64 {
	return kernel.Draw(uint64(id), 0)
}

// Bucket is which of n buckets, n being at least 1, the hash of an id falls into: the
// buckets are runs of hash values of equal length, in their order.
func Bucket(hash uint64, n int64) int64 {
	hi, _ := bits.Mul64(hash, uint64(n))
	return int64(hi)
}

// LowestHash is the least hash that falls into bucket number i of n, i being below n.
func LowestHash(i, n int64) uint64 {
	q, r := bits.Div64(uint64(i), 0, uint64(n))
	if r > 0 {
		q++
	}
	return q
}

// RowElement is the element of a sparse layer at which the bucket of a row begins: the row
// belongs to the shard and to the block that have it.
func (l Layer) RowElement(id int64) int64 {
	return Bucket(Hash(id), int64(l.Rows())) * int64(l.RowElems())
}
