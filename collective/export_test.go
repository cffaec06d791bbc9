package collective

import (
	"bytes"
	"context"
)

// RaceEnabled tells tests that everything takes ten times as long.
const RaceEnabled = raceEnabled

// Kill ends a rank as the death of its process would: no word to anybody.
func (g *Group) Kill() {
	g.mu.Lock()
	if g.err == nil {
		g.err = ErrClosed
		close(g.whole)
	}
	g.mu.Unlock()
	for _, p := range g.peers {
		if p != nil {
			_ = p.control.Close()
			p.data.close(ErrClosed)
			p.direct.close(ErrClosed)
		}
	}
	g.origin.close()
}

// Freeze stops the control frames of a rank, as SIGSTOP would, until the returned func is
// called.
func (g *Group) Freeze() func() {
	g.mu.Lock()
	return g.mu.Unlock
}

// GiveUpSplit tells the others what this rank wishes, and is gone before they can connect.
func GiveUpSplit(ctx context.Context, g *Group, color int) error {
	_, o, err := g.exchange(ctx, color, 0)
	if err != nil {
		return err
	}
	o.close()
	return nil
}

// Taint makes what this rank sends to another one begin with bytes that are no scale.
func (g *Group) Taint(to int) { g.peers[to].data = tainted{g.peers[to].data} }

type tainted struct{ lane }

func (l tainted) send(h *header, payload []byte, _ bool) (ticket, error) {
	payload = bytes.Clone(payload)
	copy(payload, []byte{0xff, 0xff, 0xff, 0xff})
	return l.lane.send(h, payload, true)
}

// The memory that ranks share, for tests that write to it what no rank would.
var (
	CreateMemory = createMemory
	MapMemory    = mapMemory
)

// Arena is the memory of this rank that others map, and the offsets of words in it: of its
// steps, of what it has sent to a rank, and of what that has read.
func (g *Group) Arena(to int) (mem []byte, step, head, tail int) {
	place := to // where all ranks are of one host
	return g.shared.own.mem, stepAt, indexesAt + 2*wordBytes*place, indexesAt + 2*wordBytes*place + wordBytes
}

// CallAt is where the headers of the latest calls lie.
func (g *Group) CallAt(n int) int { return callsAt + n*headerBytes }
