package checkpoint_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// A checkpoint of a layer that is one shard with one optimizer slot, taken and put back.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s := checkpoint.Folder(dir)
	model := shard.Model{Layers: []shard.Layer{{Name: "fc.bias", Shape: []int{4}}}}
	cut, err := shard.Partition(model, shard.PartitionOptions{})
	if err != nil {
		log.Fatal(err)
	}

	name, err := checkpoint.Next(ctx, s)
	if err != nil {
		log.Fatal(err)
	}
	state := checkpoint.Shard{Layer: "fc.bias", End: 4, Epoch: 1, Applied: 17, Slots: []string{"momentum"}, Blocks: []int{0}}
	file, err := checkpoint.WriteFile(ctx, s, name, "0.safetensors", []checkpoint.Shard{state}, func(w *checkpoint.Writer) error {
		return w.WriteBlock(0, 0, []float32{1, 2, 3, 4}, []float32{.1, .2, .3, .4})
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := checkpoint.Commit(ctx, s, checkpoint.Manifest{Name: name, Model: model, Shards: cut, Files: []checkpoint.File{file}}); err != nil {
		log.Fatal(err)
	}

	c, skipped, err := checkpoint.Latest(ctx, s, "")
	if err != nil {
		log.Fatal(err)
	}
	weights, momentum := make([]float32, 4), make([]float32, 4)
	state, err = c.ReadShard(ctx, 0, weights, []string{"momentum"}, momentum)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Ref().Name, len(skipped), state.Applied, weights, momentum)
	// Output: ckpt-00000001 0 17 [1 2 3 4] [0.1 0.2 0.3 0.4]
}
