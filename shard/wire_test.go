package shard_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// The type on the wire is one of four; it changes neither the size of the state nor
// where it lies.
func TestWireType(t *testing.T) {
	for _, tc := range []struct {
		wire shard.DType
		want string
	}{
		{shard.Float32, ""},
		{shard.Float16, ""},
		{shard.BFloat16, ""},
		{shard.Float8E4M3, ""},
		{shard.Float64, `shard: invalid model: layer 0 "x": wire type float64, have float32, float16, bfloat16 and float8_e4m3`},
		{77, `shard: invalid model: layer 0 "x": wire type dtype(77), have float32, float16, bfloat16 and float8_e4m3`},
	} {
		m := shard.Model{Layers: []shard.Layer{{Name: "x", Shape: []int{1000, 333}, Wire: tc.wire}}}
		err := m.Validate()
		if tc.want != "" {
			require.ErrorIs(t, err, shard.ErrInvalidModel)
			require.EqualError(t, err, tc.want)
			continue
		}
		require.NoError(t, err)
		plain := m
		plain.Layers = []shard.Layer{{Name: "x", Shape: []int{1000, 333}}}
		require.Equal(t, plain.Bytes(), m.Bytes())
		want, err := shard.Partition(plain, shard.PartitionOptions{})
		require.NoError(t, err)
		got, err := shard.Partition(m, shard.PartitionOptions{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// The type on the wire is reported beside other faults of the same layer.
func TestWireTypeAmongFaults(t *testing.T) {
	m := shard.Model{Layers: []shard.Layer{
		{Name: "x", Shape: []int{-1}, DType: shard.Float16, Wire: shard.Float64},
		{Name: "y", Wire: 200},
	}}
	err := m.Validate()
	for _, want := range []string{"dtype float16", "wire type float64", "dimension 0 is -1", `"y": wire type dtype(200)`} {
		require.ErrorContains(t, err, want)
	}
}
