package collective

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
)

// Bytes on the socket beside shared memory.
const (
	noteMemory   = 'm' // a descriptor comes with it; then: the other's is mapped
	noteNoMemory = 'n' // the rank could not make any, or could not map the other's
	noteWake     = 'w'
)

// How long a rank waits before it sleeps: looks at memory, and turns of other processes.
// Sleep and wake cost tens of microseconds, turns next to nothing; but a rank that has
// nothing to do for long must not use a processor. Where there are processors for all ranks
// a turn goes to somebody else, perhaps for milliseconds, and it is better to look for longer.
const (
	spinLooks     = 64
	spinLooksWide = 500
	spinTurns     = 150
	// A turn of longTurn went to a program that has nothing to do with this one: whoever
	// sleeps is preferred to it when it wakes. The next shortWaits waits end in sleep at once.
	longTurn   = 300 * time.Microsecond
	shortWaits = 50
)

// hostMemory is the memory that the ranks of a host share, as one of them sees it.
type hostMemory struct {
	own   *arena
	place int     // of this rank among those of its host
	ranks int     // of the group
	mates []*mate // by place; nil for this rank and for those that do not share
	log   *slog.Logger

	looks   int           // before it gives its processor away
	short   int           // waits without turns that are to come
	wake    chan struct{} // capacity 1
	turn    uint64        // steps that this rank has made in calls by all together
	pending []*ringLane   // that have frames to send; of the call under way
	freeing sync.Once
}

// mate is another rank of the host.
type mate struct {
	host   *hostMemory
	rank   int
	place  int
	theirs *arena
	conn   *stream.Conn // for waking and descriptors
	socket *net.UnixConn
	raw    syscall.RawConn
	fds    chan int // that have come
	lane   *ringLane
	failed atomic.Pointer[error] // of the lane
}

// newHostMemory makes the shared memory of a rank of a group, and its descriptor for the others:
// nil where there are none, or no memory.
func (o *origin) newHostMemory(r roster) (h *hostMemory, fd int) {
	places := o.neighbours(r)
	if !o.shares() || len(places) < 2 || len(places) > maxMates {
		return nil, -1
	}
	h = &hostMemory{
		ranks: len(r.Members), mates: make([]*mate, len(places)), log: o.cfg.Log, wake: make(chan struct{}, 1),
		own: &arena{arenaShape: shapeOf(len(places))},
	}
	h.place = o.place(r, r.rankOf(o.self.Name))
	if h.looks = spinLooks; len(places) <= runtime.NumCPU() {
		h.looks = spinLooksWide
	}
	fd, mem, err := createMemory(h.own.size)
	if err != nil {
		o.cfg.Log.Warn("collective: ranks of this host use sockets", "member", o.cfg.Name, "err", err)
		return nil, -1
	}
	h.own.mem = mem
	h.own.sign(r.Epoch, h.place)
	return h, fd
}

// complete reports whether this rank shares memory with all others of the group.
func (h *hostMemory) complete() bool {
	if h == nil {
		return false
	}
	missing := 0
	for _, m := range h.mates {
		if m == nil {
			missing++
		}
	}
	return h.ranks == len(h.mates) && missing == 1
}

// place is the place of a rank among those of this host, -1 if it is elsewhere.
func (o *origin) place(r roster, rank int) int { return slices.Index(o.neighbours(r), rank) }

// shares reports whether this rank shares memory with others of its host.
func (o *origin) shares() bool {
	return sharesMemory && !o.cfg.SocketsOnly && o.self.Local != ""
}

// neighbours are the ranks of this host, in their order.
func (o *origin) neighbours(r roster) []int {
	var ranks []int
	for rank, m := range r.Members {
		if m.Host == o.self.Host && m.Local != "" {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// listen takes what comes over the socket beside the memory until it ends.
func (m *mate) listen() {
	var b [64]byte
	for {
		n, fd, err := receiveDescriptor(m.socket, b[:])
		if fd >= 0 {
			select {
			case m.fds <- fd:
			default:
				closeDescriptor(fd) // more than anybody waits for
			}
		}
		if err != nil || n == 0 {
			m.fail(fmt.Errorf("collective: the socket beside shared memory: %w", err))
			return
		}
		m.host.poke()
	}
}

// fail ends the lane to a mate.
func (m *mate) fail(err error) {
	m.failed.CompareAndSwap(nil, &err)
	_ = m.conn.CloseWithError(err) // what it had before is as good
	m.host.poke()
}

func (m *mate) err() error {
	if e := m.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// poke wakes this rank.
func (h *hostMemory) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// ring wakes a mate if it sleeps until this rank has done something. What that is has been
// published before.
func (m *mate) ring() {
	parked := m.theirs.parked()
	if x := parked.Load(); x == uint64(m.host.place)+1 || x == parkedAny {
		if parked.CompareAndSwap(x, parkedNever) {
			writeNow(m.raw, []byte{noteWake})
		}
	}
}

// await waits until ready says so; m is the mate that will make it so. Meanwhile frames go
// out that there was no room for.
func (h *hostMemory) await(m *mate, ready func() (bool, error)) error {
	look := func() (bool, error) {
		failed := m.err() // what a mate did before it failed counts
		if err := h.push(); err != nil {
			return false, err
		}
		ok, err := ready()
		if !ok && err == nil {
			err = failed
		}
		return ok, err
	}
	for range h.looks {
		if ok, err := look(); ok || err != nil {
			return err
		}
	}
	if ok, err := h.takeTurns(look); ok || err != nil {
		return err
	}
	parked, whom := h.own.parked(), uint64(m.place)+1
	for {
		if len(h.pending) > 0 {
			whom = parkedAny
		}
		parked.Store(whom)
		ok, err := look()
		if ok || err != nil {
			parked.Store(parkedNever)
			return err
		}
		<-h.wake
	}
}

// takeTurns looks whenever others have had the processor.
func (h *hostMemory) takeTurns(look func() (bool, error)) (bool, error) {
	if h.short > 0 {
		h.short--
		return false, nil
	}
	last := time.Now()
	for range spinTurns {
		runtime.Gosched() // a rank of the same process
		yieldProcessor()
		if ok, err := look(); ok || err != nil {
			return ok, err
		}
		now := time.Now()
		if now.Sub(last) > longTurn {
			h.short = shortWaits
			break
		}
		last = now
	}
	return false, nil
}

// push lets frames out that wait for room.
func (h *hostMemory) push() error {
	for i := 0; i < len(h.pending); i++ {
		l := h.pending[i]
		if err := l.push(); err != nil {
			return err
		}
		if l.queue.left() == 0 {
			l.waits = false
			h.pending = append(h.pending[:i], h.pending[i+1:]...)
			i--
		}
	}
	return nil
}

// free unmaps the memory. Nobody uses it any more.
func (h *hostMemory) free() {
	if h == nil {
		return
	}
	h.freeing.Do(func() {
		for _, m := range h.mates {
			if m == nil {
				continue
			}
			_ = m.conn.Close() // it may not have been a lane's
			unmapMemory(m.theirs.mem)
			m.theirs.mem = nil
			for {
				select {
				case fd := <-m.fds:
					closeDescriptor(fd)
					continue
				default:
				}
				break
			}
		}
		unmapMemory(h.own.mem)
		h.own.mem = nil
	})
}

// maxFiles bounds the descriptors of a mate that have come and are not asked for yet.
const maxFiles = 16
