package ps_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Three workers fit y = 2x + 1 in lockstep on two parameter servers, and a shard moves
// while they do. All of it runs on one node; with nodes that are connected it runs
// in as many processes.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	node, err := actor.Start(ctx, actor.Config{})
	check(err)
	defer node.Close()
	coordinator, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: ps.Job{
		Model: shard.Model{Layers: []shard.Layer{
			{Name: "slope", Init: shard.Initializer{Kind: shard.Normal, Scale: 0.1}}, // the default is zeros
			{Name: "offset"},
		}},
		Optimizer:   ps.SGD(0.1), // under BSP applied to the sum of the workers' gradients
		Consistency: ps.Consistency{Mode: ps.BSP},
		MinServers:  2,
	}})
	check(err)
	defer coordinator.Close()
	for _, id := range []shard.ServerID{"ps-0", "ps-1"} {
		server, err := ps.StartServer(ctx, ps.ServerConfig{Node: node, ID: id, Coordinator: coordinator.Ref()})
		check(err)
		defer server.Close()
	}
	reader, err := ps.Dial(ctx, ps.ClientConfig{Node: node, Name: "reader", Coordinator: coordinator.Ref()})
	check(err)
	defer reader.Close()
	var slope, offset [1]float32
	check(reader.Pull(ctx, "slope", slope[:])) // waits until the layers are placed

	var all []*ps.Worker
	for i := range 3 { // all are members before the first clock ends
		worker, err := ps.StartWorker(ctx, ps.ClientConfig{Node: node, Name: fmt.Sprint("worker-", i), Coordinator: coordinator.Ref()})
		check(err)
		all = append(all, worker)
	}
	var workers sync.WaitGroup
	for i, worker := range all {
		workers.Go(func() { train(ctx, worker, float32(i)) })
	}
	admin, err := ps.NewAdmin(node, coordinator.Ref())
	check(err)
	swapShards(ctx, admin)
	workers.Wait()

	check(reader.Pull(ctx, "slope", slope[:]))
	check(reader.Pull(ctx, "offset", offset[:]))
	fmt.Printf("y = %.2fx + %.2f\n", slope[0], offset[0])
	// Output: y = 2.00x + 1.00
}

// Two workers share a dataset: each asks for a range of records, trains on it, and says
// that it is finished. One leaves early; the other gets what is left.
func ExampleWorker_NextRange() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	node, err := actor.Start(ctx, actor.Config{})
	check(err)
	defer node.Close()
	coordinator, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: ps.Job{
		Model:     shard.Model{Layers: []shard.Layer{{Name: "sum"}}},
		Optimizer: ps.SGD(1),
		Datasets:  []ps.Dataset{{Name: "numbers", Records: 1000, RangeRecords: 64, Epochs: 2, Shuffle: true, Seed: 1}},
	}})
	check(err)
	defer coordinator.Close()
	server, err := ps.StartServer(ctx, ps.ServerConfig{Node: node, ID: "ps-0", Coordinator: coordinator.Ref()})
	check(err)
	defer server.Close()
	var workers sync.WaitGroup
	for i, ranges := range []int{3, 1000} {
		worker, err := ps.StartWorker(ctx, ps.ClientConfig{Node: node, Name: fmt.Sprint("worker-", i), Coordinator: coordinator.Ref()})
		check(err)
		workers.Go(func() {
			defer worker.Close() // what it has not finished goes to others
			addNumbers(ctx, worker, ranges)
		})
	}
	workers.Wait()
	reader, err := ps.Dial(ctx, ps.ClientConfig{Node: node, Name: "reader", Coordinator: coordinator.Ref()})
	check(err)
	defer reader.Close()
	var sum [1]float32
	check(reader.Pull(ctx, "sum", sum[:]))
	fmt.Printf("twice the sum of the numbers below 1000: %.0f\n", sum[0])
	// Output: twice the sum of the numbers below 1000: 999000
}

// addNumbers adds up the records of some ranges, which are numbers here.
func addNumbers(ctx context.Context, worker *ps.Worker, ranges int) {
	for range ranges {
		r, err := worker.NextRange(ctx, "numbers")
		if errors.Is(err, ps.ErrEndOfData) {
			return
		}
		check(err)
		var grad float32
		for record := range r.Records() {
			grad -= float32(record)
		}
		check(worker.Push(ctx, "sum", []float32{grad}))
		check(worker.FinishRange(ctx, r))
	}
}

// train makes 200 steps on one point of the line.
func train(ctx context.Context, worker *ps.Worker, x float32) {
	defer worker.Close() // a member that neither ticks nor leaves holds the others
	var slope, offset [1]float32
	for range 200 {
		check(worker.Pull(ctx, "slope", slope[:]))
		check(worker.Pull(ctx, "offset", offset[:]))
		err := slope[0]*x + offset[0] - (2*x + 1)
		check(worker.Push(ctx, "slope", []float32{err * x}))
		check(worker.Push(ctx, "offset", []float32{err}))
		check(worker.Tick(ctx))
	}
}

// swapShards moves each shard to the other server.
func swapShards(ctx context.Context, admin *ps.Admin) {
	status, err := admin.Status(ctx)
	check(err)
	for _, a := range status.Map.Assignments {
		to := shard.ServerID("ps-0")
		if a.Owner == to {
			to = "ps-1"
		}
		report, err := admin.Move(ctx, a.Shard, to)
		check(err)
		check(report.Err())
	}
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// A table of embeddings: rows by id, of which a batch touches a few.
func ExampleClient_PushRows() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	node, err := actor.Start(ctx, actor.Config{})
	check(err)
	defer node.Close()
	coord, err := ps.StartCoordinator(ctx, ps.CoordinatorConfig{Node: node, Job: ps.Job{
		Model: shard.Model{Layers: []shard.Layer{
			{Name: "words", Sparse: true, Shape: []int{100_000, 2}}, // rows that are expected, elements of each
		}},
		Optimizer: ps.SGD(0.5),
	}})
	check(err)
	defer coord.Close()
	server, err := ps.StartServer(ctx, ps.ServerConfig{Node: node, ID: "ps-0", Coordinator: coord.Ref(), Listen: ps.ListenNone})
	check(err)
	defer server.Close()
	worker, err := ps.StartWorker(ctx, ps.ClientConfig{Node: node, Name: "w", Coordinator: coord.Ref()})
	check(err)
	defer worker.Close()

	ids := []int64{7, -3, 7} // the gradients of 7 are added first
	check(worker.PushRows(ctx, "words", ids, []float32{1, 2, 10, 20, 3, 4}))
	rows := make([]float32, 2*3)
	check(worker.PullRows(ctx, "words", []int64{-3, 7, 1 << 40}, rows))
	fmt.Println(rows)
	// Output: [-5 -10 -2 -3 0 0]
}
