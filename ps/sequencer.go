package ps

import (
	"context"
	"sync"

	"github.com/elasticps/elasticps/shard"
)

// sequencer hands out the sequence numbers of one worker's pushes to one shard and
// knows the lowest one that is still of interest. At most shard.WindowSize numbers
// are outstanding.
type sequencer struct {
	mu       sync.Mutex
	next     uint64 // number of the next push; the first is 1
	floor    uint64 // lowest number not resolved
	resolved [shard.WindowSize]bool
	room     chan struct{} // has a value when numbers were freed while somebody waited
}

func newSequencer() *sequencer {
	return &sequencer{next: 1, floor: 1, room: make(chan struct{}, 1)}
}

// take returns a new number, waiting while too many are outstanding.
func (s *sequencer) take(ctx context.Context) (uint64, error) {
	for {
		var seq uint64
		if s.tryTake(&seq) {
			s.signal() // another waiter may find room too
			return seq, nil
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// tryTake sets seq to a new number unless too many are outstanding.
func (s *sequencer) tryTake(seq *uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next-s.floor >= shard.WindowSize {
		return false
	}
	*seq = s.next
	s.next++
	return true
}

// low is the floor to send along.
func (s *sequencer) low() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.floor
}

// resolve says that nobody waits for seq any more.
func (s *sequencer) resolve(seq uint64) {
	s.mu.Lock()
	s.resolved[seq%shard.WindowSize] = true
	for s.floor < s.next && s.resolved[s.floor%shard.WindowSize] {
		s.resolved[s.floor%shard.WindowSize] = false
		s.floor++
	}
	s.mu.Unlock()
	s.signal()
}

func (s *sequencer) signal() {
	select {
	case s.room <- struct{}{}:
	default:
	}
}
