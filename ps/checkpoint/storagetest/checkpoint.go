package storagetest

import (
	"context"
	"math"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// testCheckpoint takes a full checkpoint and an increment through the storage and back.
func testCheckpoint(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	const elems = 2*checkpoint.BlockElems + 5
	model := shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{elems}}}}
	cut := []shard.Shard{{Range: shard.Range{End: elems}}}
	weights, slot := make([]float32, elems), make([]float32, elems)
	for i := range weights {
		weights[i], slot[i] = float32(i), -float32(i)
	}
	var parent *checkpoint.Ref
	for step, blocks := range [][]int{{0, 1, 2}, {1}} {
		name, err := checkpoint.Next(ctx, s)
		require.NoError(t, err)
		weights[checkpoint.BlockElems] += float32(step)
		state := checkpoint.Shard{Layer: "w", End: elems, Slots: []string{"m"}, Blocks: blocks, Applied: uint64(step), Windows: []byte("windows")}
		file, err := checkpoint.WriteFile(ctx, s, name, "0.safetensors", []checkpoint.Shard{state}, func(w *checkpoint.Writer) error {
			for _, b := range blocks {
				lo, hi := b*checkpoint.BlockElems, min((b+1)*checkpoint.BlockElems, elems)
				if err := w.WriteBlock(0, b, weights[lo:hi], slot[lo:hi]); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(t, err)
		described, err := checkpoint.Describe(ctx, s, name, "0.safetensors")
		require.NoError(t, err)
		require.Equal(t, file, described)
		ref, err := checkpoint.Commit(ctx, s, checkpoint.Manifest{Name: name, Parent: parent, Model: model, Shards: cut, Files: []checkpoint.File{file}})
		require.NoError(t, err)
		parent = &ref
	}
	c, skipped, err := checkpoint.Latest(ctx, s, "")
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.NoError(t, c.Verify(ctx))
	gotWeights, gotSlot := make([]float32, elems), make([]float32, elems)
	state, err := c.ReadShard(ctx, 0, gotWeights, []string{"m"}, gotSlot)
	require.NoError(t, err)
	require.Equal(t, uint64(1), state.Applied)
	require.Equal(t, "windows", string(state.Windows))
	for i := range weights {
		if math.Float32bits(weights[i]) != math.Float32bits(gotWeights[i]) || slot[i] != gotSlot[i] {
			t.Fatalf("element %d is %v and %v, was %v and %v", i, gotWeights[i], gotSlot[i], weights[i], slot[i])
		}
	}
	require.NoError(t, c.Export(ctx, s, "model.safetensors", shard.BFloat16))
	removed, err := checkpoint.Prune(ctx, s, 1)
	require.NoError(t, err)
	require.Empty(t, removed, "the increment needs the full one")
}
