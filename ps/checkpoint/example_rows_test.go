package checkpoint_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// A program that serves a model reads the rows of a table, two of them here, into a map of its own.
func ExampleCheckpoint_ReadTable() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := checkpoint.Folder(dir)
	model := shard.Model{Layers: []shard.Layer{{Name: "words", Shape: []int{1000, 3}, Sparse: true}}}
	cut, err := shard.Partition(model, shard.PartitionOptions{})
	if err != nil {
		log.Fatal(err)
	}

	name, err := checkpoint.Next(ctx, s)
	if err != nil {
		log.Fatal(err)
	}
	state := checkpoint.Shard{Layer: "words", End: 3000, Epoch: 1, Blocks: []int{0}, Dim: 3, Rows: []int{2}, Waiting: []int{0}}
	file, err := checkpoint.WriteFile(ctx, s, name, "0.safetensors", []checkpoint.Shard{state}, func(w *checkpoint.Writer) error {
		return w.WriteRows(0, 0, &checkpoint.Rows{IDs: []int64{7, -1}, State: make([]uint64, 2), Weights: []float32{1, 2, 3, 4, 5, 6}})
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := checkpoint.Commit(ctx, s, checkpoint.Manifest{Name: name, Model: model, Shards: cut, Files: []checkpoint.File{file}}); err != nil {
		log.Fatal(err)
	}

	c, _, err := checkpoint.Latest(ctx, s, "")
	if err != nil {
		log.Fatal(err)
	}
	n, err := c.CountRows(ctx, "words")
	if err != nil {
		log.Fatal(err)
	}
	words := make(map[int64][3]float32, n)
	err = c.ReadTable(ctx, "words", func(ids []int64, weights []float32) error {
		for i, id := range ids {
			words[id] = [3]float32(weights[3*i:])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, words)
	// Output: 2 map[-1:[4 5 6] 7:[1 2 3]]
}
