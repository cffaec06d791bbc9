package elastic_test

import (
	"fmt"
	"time"

	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/shard"
)

// The policy is a function from what was measured to what is to be done.
func ExamplePolicy_Plan() {
	shards, _ := shard.Partition(
		shard.Model{Layers: []shard.Layer{{Name: "embedding", Shape: []int{64, 1024}}}},
		shard.PartitionOptions{MaxShardBytes: 4 * 1024},
	)
	var servers []shard.Server
	var samples []elastic.ServerSample
	for i := range 8 {
		id := shard.ServerID(fmt.Sprintf("ps-%d", i))
		servers = append(servers, shard.Server{ID: id})
		samples = append(samples, elastic.ServerSample{
			ID: id, Up: true, GradientLatency: 63 * time.Millisecond, Utilization: elastic.Unknown, BytesPerSecond: elastic.Unknown,
		})
	}
	owners, _ := shard.Place(shards, servers)

	var policy elastic.Policy // the defaults
	var state elastic.State
	for _, at := range []time.Duration{0, 5 * time.Second} {
		var plan elastic.Plan
		plan, state = policy.Plan(elastic.Snapshot{At: at, Servers: samples, Shards: shards, Map: owners}, state)
		fmt.Println(plan.Decision, len(plan.Operators), "operators")
	}
	// Output:
	// [ElasticController] Kept PS: 8 Reason: dwelling Trigger: grad_latency=63ms > threshold=50ms 0 operators
	// [ElasticController] Scaled PS: 8→12 Trigger: grad_latency=63ms > threshold=50ms 4 operators
}
