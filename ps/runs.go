package ps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// Records name servers by name only, and of one name there may be several processes that
// live: one that hangs or is cut off, and another that was started in its place. So each
// process, a run of its server, has a number, and the store has the one that counts for
// each name. A record that names the server means the copy of that run: before a later one
// gets anything it is written down, from then on no coordinator takes in an earlier one,
// and whatever that has is void.

// departure is how a server has left the job.
type departure uint8

const (
	present   departure = iota
	forgotten           // it was down: it takes part again when it is back
	removed             // it was drained: it is out for good
)

// address is the run of a server that counts, and where its actor runs, as the store has
// it. Run is 0 in what an earlier version has written: then the first one that comes counts,
// with what it has.
type address struct {
	ID            shard.ServerID
	Node, Process string
	Addr          string    // of the node
	Run           uint64    `json:",omitempty"`
	Left          departure `json:",omitempty"`
	// Before are earlier runs that may live: what the one that counts does, or that it is
	// dead, says nothing about them. At most maxBefore.
	Before []earlierRun `json:",omitempty"`
}

// earlierRun is a run of a server that does not count any more. One without address is never
// known to be over.
type earlierRun struct {
	Run  uint64
	Addr string // of the node
	Node string `json:",omitempty"`
}

// names reports whether the name of the node of an earlier run means no other node.
func (a address) names(e earlierRun) bool {
	isOther := func(o earlierRun) bool { return o.Node == e.Node && o.Addr != e.Addr }
	return e.Node != "" && e.Node != a.Node && !slices.ContainsFunc(a.Before, isOther)
}

// maxBefore bounds the earlier runs of a server whose end is awaited; the first one stands
// for more.
const maxBefore = 16

// replacedBy is the entry when another run counts, or the same one at another place. Two
// runs cannot listen at one address.
func (a address) replacedBy(info serverInfo) address {
	is := address{ID: info.ID, Node: info.Node, Process: info.Process, Addr: info.Addr, Run: info.Run, Before: slices.Clone(a.Before)}
	if a.ID != "" && a.Run != info.Run && a.Left == present { // who has left had nothing
		is.Before = append(is.Before, earlierRun{a.Run, a.Addr, a.Node})
	}
	is.Before = slices.DeleteFunc(is.Before, func(e earlierRun) bool { return e.Addr == info.Addr })
	if n := len(is.Before); n > maxBefore {
		is.Before = append([]earlierRun{{}}, is.Before[n-maxBefore+1:]...)
	}
	return is
}

// admits returns an error unless a run may take part: the one that counts, or a later one,
// which has nothing yet.
func (a address) admits(id shard.ServerID, run uint64, isEmpty bool) error {
	switch {
	case run == 0:
		return fmt.Errorf("%w: server %q has no number for its run", ErrNotMember, id)
	case run < a.Run:
		return fmt.Errorf("%w: run %d of server %q has taken the place of run %d, which takes part again only when it is started again",
			ErrNotMember, a.Run, id, run)
	case run == a.Run && a.Left == removed:
		return fmt.Errorf("%w: server %q was taken out, and takes part again only when it is started again", ErrNotMember, id)
	case run > a.Run && a.Run > 0 && !isEmpty: // its name was forgotten so long ago that the store does not know its run
		return fmt.Errorf("%w: run %d of server %q has copies, and was replaced by run %d before; it takes part again only when it is started again",
			ErrNotMember, run, id, a.Run)
	}
	return nil
}

// knows reports whether the store has that a run of a server counts, and where it is.
func (p *placement) knows(info serverInfo) bool {
	at := p.where(info.ID)
	return at.Run == info.Run && at.Node == info.Node && at.Process == info.Process && at.Addr == info.Addr && at.Left == present && !p.isOpen(info.ID)
}

// remember writes down which run of a server counts and where it is. A coordinator that
// comes later and never hears of that server can find out there whether it is dead.
func (p *placement) remember(ctx context.Context, info serverInfo) error {
	return p.note(ctx, info.ID, func(was address) (address, error) {
		return was.replacedBy(info), was.admits(info.ID, info.Run, true)
	})
}

// bury writes down that earlier runs of a server are over, or have given up what they had.
func (p *placement) bury(ctx context.Context, id shard.ServerID, runs ...uint64) error {
	err := p.note(ctx, id, func(was address) (address, error) {
		left := slices.DeleteFunc(slices.Clone(was.Before), func(e earlierRun) bool { return slices.Contains(runs, e.Run) })
		if len(left) == len(was.Before) {
			return was, errSettled
		}
		was.Before = left
		return was, nil
	})
	if errors.Is(err, errSettled) {
		return nil
	}
	return err
}

// leave writes down that a server has left. Its entry stays, as long as maxLeft others do
// not leave after it: it says which of its runs may come back.
func (p *placement) leave(ctx context.Context, id shard.ServerID, how departure) error {
	err := p.note(ctx, id, func(was address) (address, error) {
		if was.ID == "" || was.Left != present || was.Run != p.where(id).Run { // it has left, or is another by now
			return was, errSettled
		}
		was.Left = how
		return was, nil
	})
	if err != nil && !errors.Is(err, errSettled) {
		return err
	}
	for _, old := range p.oldest() {
		none := func(was address) (address, error) {
			if was.Left == present {
				return was, errSettled
			}
			return address{}, nil
		}
		if err := p.note(ctx, old, none); err != nil && !errors.Is(err, errSettled) {
			return err
		}
	}
	return nil
}

// maxLeft bounds the servers of which the store knows that they have left.
const maxLeft = 1024

// oldest are those who have left and are too many, by their runs.
func (p *placement) oldest() (ids []shard.ServerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, a := range p.seen {
		if a.Left != present {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b shard.ServerID) int { return cmp.Compare(p.seen[a].Run, p.seen[b].Run) })
	return ids[:max(0, len(ids)-maxLeft)]
}

// note writes what f makes of the entry of a server; the zero value deletes it. An error
// of f is returned as it is.
func (p *placement) note(ctx context.Context, id shard.ServerID, f func(was address) (address, error)) error {
	p.naming.Lock()
	defer p.naming.Unlock()
	for key := p.serverKey(id); ; {
		e, err := p.kv.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		was, err := p.addressOf(e)
		if err != nil {
			return err
		}
		is, err := f(was)
		if err != nil {
			return err
		}
		var text []byte
		if is.ID != "" {
			if text, err = json.Marshal(is); err != nil {
				return fmt.Errorf("ps: address of server %q: %w", id, err)
			}
		}
		p.setOpen(id, true)
		_, err = p.kv.CompareAndSwap(ctx, key, e.Revision, text)
		if errors.Is(err, store.ErrConflict) {
			continue // ends with ctx
		}
		if err != nil {
			return err
		}
		p.setOpen(id, false)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.seen[id] = is; is.ID == "" {
			delete(p.seen, id)
		}
		return nil
	}
}

func (p *placement) serverKey(id shard.ServerID) string {
	return p.prefix + "server/" + processName(string(id))
}

// addressOf reads an entry, the zero value from one that is not there.
func (p *placement) addressOf(e store.Entry) (a address, err error) {
	if e.Revision == 0 {
		return a, nil
	}
	err = json.Unmarshal(e.Value, &a)
	if err == nil && (a.ID == "" || p.serverKey(a.ID) != e.Key) {
		err = fmt.Errorf("%w: it holds server %.64q", ErrConflict, a.ID)
	}
	if err != nil {
		return address{}, fmt.Errorf("ps: store key %q: %w", e.Key, err)
	}
	return a, nil
}

func (p *placement) setOpen(id shard.ServerID, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[id] = true; !open {
		delete(p.open, id)
	}
}

// isOpen reports whether another run of a server than the one that is known may count by
// now: a write is under way, or what came of it is not known.
func (p *placement) isOpen(id shard.ServerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[id]
}

// counts is the number of the run of a server that counts for certain, 0 if it is open.
func (p *placement) counts(id shard.ServerID) uint64 {
	if p.isOpen(id) {
		return 0
	}
	return p.where(id).Run
}

// where is the run of a server that counts; zero if none is known.
func (p *placement) where(id shard.ServerID) address {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[id]
}

// loadServers reads what remember and leave have written.
func (p *placement) loadServers(ctx context.Context) error {
	entries, err := p.kv.List(ctx, p.prefix+"server/")
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entries {
		a, err := p.addressOf(e)
		if err != nil {
			return err
		}
		p.seen[a.ID] = a
	}
	return nil
}

// known lists the servers that are in the job, as the store has it, in order.
func (p *placement) known() (ids []shard.ServerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(p.seen)) {
		if p.seen[id].Left == present {
			ids = append(ids, id)
		}
	}
	return ids
}
