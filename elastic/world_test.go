package elastic

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// world is a job without a clock on which operators act: the policy's partner
// in its tests. Operators end at the next tick after their delay.
type world struct {
	at       time.Duration
	servers  []ServerSample
	shards   []shard.Shard
	owners   shard.Map
	inFlight []Operator
	finished []Operator
	target   int
	demand   float64 // see load
	policy   Policy
	state    State
	delay    func(Operator) time.Duration
	fail     func(Operator) bool
}

func equalShards(n int, elems int64) []shard.Shard {
	shards := make([]shard.Shard, n)
	for i := range shards {
		shards[i] = shard.Shard{ID: shard.ID(i), Range: shard.Range{Begin: int64(i) * elems, End: int64(i+1) * elems}}
	}
	return shards
}

func newWorld(t testing.TB, p Policy, numShards, numServers int) *world {
	t.Helper()
	w := &world{policy: p, shards: equalShards(numShards, 1<<18)}
	servers := make([]shard.Server, numServers)
	for i := range servers {
		servers[i].ID = shard.ServerID(fmt.Sprintf("ps-%d", i))
		w.servers = append(w.servers, ServerSample{ID: servers[i].ID, Up: true})
	}
	m, err := shard.Place(w.shards, servers)
	require.NoError(t, err)
	w.owners = m
	w.delay = func(Operator) time.Duration { return 0 }
	w.fail = func(Operator) bool { return false }
	return w
}

// measured sets what every server that takes shards reports.
func (w *world) measured(latency time.Duration, utilization, bytesPerSecond float64) {
	for i := range w.servers {
		s := &w.servers[i]
		s.GradientLatency, s.Utilization, s.BytesPerSecond = latency, utilization, bytesPerSecond
	}
}

// load sets what the servers report when total is the work of all of them, in
// servers kept fully busy: an M/M/1 queue with the given service time.
func (w *world) load(total float64, service time.Duration) {
	u := min(1, total/float64(max(1, w.count())))
	w.measured(time.Duration(float64(service)/(1-min(u, 0.98))), u, u*1e9)
}

func (w *world) count() int {
	n := 0
	for _, s := range w.servers {
		if s.Up && !s.Draining {
			n++
		}
	}
	return n
}

func (w *world) index(id shard.ServerID) int {
	return slices.IndexFunc(w.servers, func(s ServerSample) bool { return s.ID == id })
}

// tick ends the operators that are due, plans, and starts the new operators.
func (w *world) tick(t testing.TB, at time.Duration) Plan {
	t.Helper()
	w.at = at
	w.finish(t)
	plan, next := w.policy.Plan(Snapshot{
		At: at, Servers: w.servers, Shards: w.shards, Map: w.owners,
		InFlight: w.inFlight, Finished: w.finished, Target: w.target,
	}, w.state)
	w.state, w.finished = next, nil
	for _, o := range plan.Operators {
		o, err := o.Advance(Started)
		require.NoError(t, err)
		w.inFlight = append(w.inFlight, o)
	}
	return plan
}

func (w *world) finish(t testing.TB) {
	t.Helper()
	var rest []Operator
	for _, o := range w.inFlight {
		if w.at < o.Created+w.delay(o) {
			rest = append(rest, o)
			continue
		}
		to := Succeeded
		if w.fail(o) {
			to = Failed
		} else {
			w.apply(t, o)
		}
		o, err := o.Advance(to)
		require.NoError(t, err)
		w.finished = append(w.finished, o)
	}
	w.inFlight = rest
}

func (w *world) apply(t testing.TB, o Operator) {
	t.Helper()
	i := w.index(o.Server)
	switch o.Kind {
	case AddServer:
		require.Negative(t, i, "%v exists", o)
		w.servers = append(w.servers, ServerSample{ID: o.Server, Up: true})
	case DrainServer, KeepServer:
		w.servers[i].Draining = o.Kind == DrainServer
	case RemoveServer:
		require.Empty(t, w.owners.Of(o.Server), "%v has shards", o)
		w.servers = slices.Delete(w.servers, i, i+1)
	case MoveShard:
		m, err := w.owners.WithOwner(o.Move.Shard, o.Move.To)
		require.NoError(t, err)
		w.owners = m
	}
}

// lockedBuffer is a buffer that a test reads while others write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
