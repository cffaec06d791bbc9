package training

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const recordInterval = 100 * time.Millisecond

// Recorder notes how the number of servers changes and which shards move, by asking
// the coordinator ten times a second.
type Recorder struct {
	admin *ps.Admin
	began time.Time
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex
	servers []report.ServerCount
	moves   []report.Migration
	seen    map[moveKey]bool

	stranded Stranded
}

// Stranded is what servers that are down own.
type Stranded struct {
	Server shard.ServerID // one of them
	Shards int            // of all of them
}

// moveKey tells moves apart: a shard does not begin two at the same time.
type moveKey struct {
	shard   shard.ID
	started time.Duration
}

// StartRecorder begins to record. Times are counted from began.
func StartRecorder(admin *ps.Admin, began time.Time) *Recorder {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Recorder{admin: admin, began: began, stop: cancel, done: make(chan struct{}), seen: map[moveKey]bool{}}
	go r.run(ctx)
	return r
}

func (r *Recorder) run(ctx context.Context) {
	defer close(r.done)
	tick := time.NewTicker(recordInterval)
	defer tick.Stop()
	for {
		_ = r.Sample(ctx) // the next one follows
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Stranded returns what was out of reach at the last sample.
func (r *Recorder) Stranded() Stranded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stranded
}

// Sample asks now.
func (r *Recorder) Sample(ctx context.Context) error {
	status, err := r.admin.Status(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	count := 0
	r.stranded = Stranded{}
	for _, s := range status.Servers {
		switch {
		case s.Up:
			count++
		case s.Owned > 0:
			r.stranded.Server = s.ID
			r.stranded.Shards += s.Owned
		}
	}
	if last := len(r.servers) - 1; last < 0 || r.servers[last].Count != count {
		r.servers = append(r.servers, report.ServerCount{At: time.Since(r.began), Count: count})
	}
	for _, m := range status.Moves {
		key := moveKey{m.Shard, m.Started}
		if r.seen[key] || m.Outcome != shard.Moved {
			continue
		}
		r.seen[key] = true
		r.moves = append(r.moves, report.Migration{
			Shard: uint32(m.Shard), From: string(m.From), To: string(m.To), Bytes: m.Bytes, Freeze: m.Freeze, Total: m.Total,
		})
	}
	return nil
}

// NumServers returns the number of servers at the last sample.
func (r *Recorder) NumServers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.servers) == 0 {
		return 0
	}
	return r.servers[len(r.servers)-1].Count
}

// AwaitServers returns when there are n servers or fewer. The error says how many
// there are when ctx ends.
func (r *Recorder) AwaitServers(ctx context.Context, n int) error {
	for r.NumServers() > n {
		if err := pause(ctx, recordInterval/2); err != nil {
			return fmt.Errorf("training: %d servers, waiting for %d: %w", r.NumServers(), n, err)
		}
	}
	return nil
}

// History returns what was recorded.
func (r *Recorder) History() ([]report.ServerCount, []report.Migration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.servers), slices.Clone(r.moves)
}

// Close ends the recording. A second Close does nothing.
func (r *Recorder) Close() {
	r.stop()
	<-r.done
}

// applied asks every server how many pushes to the shards that it owns were applied,
// wherever the shards were at the time.
func applied(ctx context.Context, admin *ps.Admin) (int64, error) {
	status, err := admin.Status(ctx)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, s := range status.Servers {
		if !s.Up {
			continue
		}
		load, err := admin.Load(ctx, s)
		if err != nil {
			return 0, fmt.Errorf("training: load of server %q: %w", s.ID, err)
		}
		total += int64(load.PushesApplied)
	}
	return total, nil
}
