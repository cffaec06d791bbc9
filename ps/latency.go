package ps

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/shard"
)

// WorkerLoad counts a client's pushes and says how long they took.
type WorkerLoad struct {
	PushesSent         uint64 // requests: a push is one for each block that it touches
	PushesAcknowledged uint64
	Servers            []LatencySummary // of the last 2 s, by server
}

// LatencySummary describes the times from sending a push request to a server until it is
// acknowledged. Count is the number of requests: of each client at most the last 128.
type LatencySummary struct {
	Server   shard.ServerID
	P50, P99 time.Duration
	Count    int
}

// latencyWindow is how long a measured latency counts.
const latencyWindow = 2 * time.Second

// latencyMemory is how long a server is remembered that does not answer.
const latencyMemory = time.Minute

type clientStats struct {
	sent, acknowledged atomic.Uint64

	mu      sync.Mutex
	servers map[shard.ServerID]*latencies
}

// latencies is a ring of the last push latencies of one server, and whether it is reached.
type latencies struct {
	made time.Time
	// sought means that somebody looks whether the server can be reached, unreached that
	// it cannot.
	sought, unreached atomic.Bool

	mu    sync.Mutex
	at    [128]time.Time
	value [128]time.Duration
	n     int
}

// of returns the latencies of a server.
func (s *clientStats) of(id shard.ServerID) *latencies {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.servers[id]
	if l == nil {
		if s.servers == nil {
			s.servers = map[shard.ServerID]*latencies{}
		}
		l = &latencies{made: time.Now()}
		s.servers[id] = l
	}
	return l
}

// answered takes note of an acknowledged call.
func (s *clientStats) answered(k *call) {
	if k.seqs == nil {
		return
	}
	s.acknowledged.Add(1)
	k.load.add(k.began.Add(k.took), k.took)
}

func (l *latencies) add(at time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[l.n%len(l.at)], l.value[l.n%len(l.at)] = at, took
	l.n++
}

// since returns those noted after t.
func (l *latencies) since(t time.Time) (recent []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range min(l.n, len(l.at)) {
		if l.at[i].After(t) {
			recent = append(recent, l.value[i])
		}
	}
	return recent
}

func (s *clientStats) load() WorkerLoad {
	w := WorkerLoad{PushesSent: s.sent.Load(), PushesAcknowledged: s.acknowledged.Load()}
	horizon := time.Now().Add(-latencyWindow)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.servers {
		recent := l.since(horizon)
		if len(recent) == 0 {
			continue
		}
		slices.Sort(recent)
		w.Servers = append(w.Servers, LatencySummary{
			Server: id, P50: recent[len(recent)/2], P99: recent[len(recent)*99/100], Count: len(recent),
		})
	}
	slices.SortFunc(w.Servers, func(a, b LatencySummary) int { return cmp.Compare(a.Server, b.Server) })
	return w
}

// forget drops the latencies of servers that have not answered for long. It reports
// whether there were any: paths still refer to them.
func (s *clientStats) forget() (dropped bool) {
	horizon := time.Now().Add(-latencyMemory)
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.servers {
		if l.made.Before(horizon) && len(l.since(horizon)) == 0 && !l.sought.Load() {
			delete(s.servers, id)
			dropped = true
		}
	}
	return dropped
}

// Load returns what this client has sent and how long it took.
func (c *Client) Load() WorkerLoad { return c.stats.load() }
