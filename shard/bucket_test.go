package shard_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// Any ids, also those that differ in few bits, fall evenly into any number of buckets.
func TestBucketsAreEven(t *testing.T) {
	const ids, n = 1 << 16, 12
	for name, id := range map[string]func(int64) int64{
		"counted":   func(i int64) int64 { return i },
		"negative":  func(i int64) int64 { return -i },
		"high bits": func(i int64) int64 { return i << 48 },
		"largest":   func(i int64) int64 { return math.MaxInt64 - i },
	} {
		var count [n]float64
		for i := range int64(ids) {
			count[shard.Bucket(shard.Hash(id(i)), n)]++
		}
		chi2, mean := 0.0, float64(ids)/n
		for _, c := range count {
			chi2 += (c - mean) * (c - mean) / mean
		}
		require.Less(t, chi2, 40.0, "%s: %v", name, count) // 11 degrees of freedom: beyond it once in 30,000
	}
}

func TestBucketBounds(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 1 << 40} {
		require.Equal(t, int64(0), shard.Bucket(0, n))
		require.Equal(t, n-1, shard.Bucket(math.MaxUint64, n))
	}
}

// TestLowestHash finds the border of each bucket.
func TestLowestHash(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 7, 1000, 1<<40 + 1, math.MaxInt64} {
		for _, i := range []int64{0, 1, n / 3, n / 2, n - 1} {
			i = min(i, n-1)
			h := shard.LowestHash(i, n)
			require.Equal(t, i, shard.Bucket(h, n), "%d of %d", i, n)
			if i > 0 {
				require.Equal(t, i-1, shard.Bucket(h-1, n), "%d of %d", i, n)
			} else {
				require.Zero(t, h)
			}
		}
	}
}
