package ps

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/table"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// What the tests of package ps_test need to see or to set. None of it is part of
// the package.

// Token is the secret of the server's data plane, for tests that speak the protocol
// by hand.
func (s *Server) Token() []byte { return s.token }

// Proof is the handshake's proof, for the same tests.
func Proof(token []byte, side string, a, b []byte) []byte { return stream.Proof(token, side, a, b) }

// WindowBytes is the size of all push windows that the server keeps, encoded.
func (s *Server) WindowBytes() int {
	n := 0
	for _, r := range s.all() {
		r.mu.Lock()
		n += r.windows.EncodedLen()
		r.mu.Unlock()
	}
	return n
}

// Route is the owner and epoch that a client believes in.
func (c *Client) Route(id shard.ID) (shard.ServerID, shard.Epoch) {
	c.routes.mu.RLock()
	defer c.routes.mu.RUnlock()
	return c.routes.owners[id].server, c.routes.owners[id].epoch
}

// Rewind gives a client an old routing table, as if every announcement since had
// been lost.
func (c *Client) Rewind(id shard.ID, server shard.ServerID, epoch shard.Epoch) {
	c.routes.mu.Lock()
	defer c.routes.mu.Unlock()
	c.routes.owners[id] = owner{server, epoch}
	c.routes.version.Add(1)
}

// Expel takes a client out of the job behind its back, as if it had been taken for
// dead.
func Expel(ctx context.Context, c *Client) error {
	_, err := ask[done](ctx, c.cfg.Node, only(c.cfg.Coordinator), leaveRequest{Incarnation: c.incarnation.Load()})
	return err
}

// BeforeStep has f called before each step of a move, to stop a party at a certain point.
func (c *CoordinatorConfig) BeforeStep(f func(shard.Effect)) { c.step = f }

// FollowersEqual compares the state of every follower with that of its owner, bit by
// bit, when it has as many changes, and returns how many there are.
func FollowersEqual(t testing.TB, servers ...*Server) (n int) {
	t.Helper()
	for _, s := range servers {
		for _, owner := range s.all() {
			for _, other := range servers {
				if f := other.replica(owner.spec.ID); f != nil && f != owner && followerEqual(t, owner, f, other.ID()) {
					n++
				}
			}
		}
	}
	return n
}

// followerEqual reports whether f follows owner, and requires that it is the same.
func followerEqual(t testing.TB, owner, f *replica, id shard.ServerID) bool {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		owner.mu.Lock()
		f.mu.Lock()
		// An owner may not have been told yet that the record has a follower that has caught up.
		follows := owner.copy.Owns() && owner.copy.Awaits(id) && f.copy.State == shard.CaughtUp
		if same := owner.changes == f.changes; !follows || same || time.Since(began) > 5*time.Second {
			defer owner.mu.Unlock()
			defer f.mu.Unlock()
			if follows {
				requireSame(t, owner, f)
			}
			return follows
		}
		f.mu.Unlock()
		owner.mu.Unlock()
	}
}

// requireSame compares two copies whose locks are held, in no time: while they are, the
// follower does not answer its owner.
func requireSame(t testing.TB, owner, f *replica) {
	t.Helper()
	require.Equal(t, owner.changes, f.changes)
	require.Equal(t, owner.last, f.last)
	sameBits := func(what string, want, got []float32) {
		t.Helper()
		require.True(t, bytes.Equal(wire.Bytes(want), wire.Bytes(got)), "%s of shard %d", what, owner.spec.ID)
	}
	sameBits("weights", owner.weights, f.weights)
	sameBits("sum", owner.sum, f.sum)
	require.Len(t, f.slots, len(owner.slots))
	for i := range owner.slots {
		sameBits("slots", owner.slots[i], f.slots[i])
	}
	require.Equal(t, blocksOf(owner), blocksOf(f))
	require.Equal(t, owner.applied, f.applied)
	require.Equal(t, owner.windows.Append(nil), f.windows.Append(nil))
	for i, b := range owner.blocks {
		g := f.blocks[i]
		b.seen, g.seen = 0, 0
		require.Equal(t, b, g)
	}
}

// TableBlock is what a server has of one block of a table.
type TableBlock struct {
	Rows    table.Columns
	Waiting []byte
}

// blocksOf returns the blocks of a table, whose lock is held; nil for a dense shard.
func blocksOf(r *replica) (blocks []TableBlock) {
	for b := range r.blocks {
		if r.table != nil {
			var c table.Columns
			r.table.Copy(b, &c)
			blocks = append(blocks, TableBlock{c, r.table.AppendWaiting(b, nil)})
		}
	}
	return blocks
}

// State is what a server has of a shard; of floats, the bits.
type State struct {
	Table            []TableBlock
	Weights          []byte
	Slots            [][]byte
	Steps            []uint64
	Clocks           []uint32
	Applied, Changes uint64
	Windows          []byte
}

// States returns the state of every shard that one of the servers owns, with the number
// of changes if they are to be compared: to close a clock is one.
func States(changes bool, servers ...*Server) map[shard.ID]State {
	all := map[shard.ID]State{}
	for _, s := range servers {
		for _, r := range s.all() {
			r.mu.Lock()
			if r.copy.Owns() {
				st := State{Table: blocksOf(r), Weights: wire.Bytes(r.weights), Applied: r.applied, Changes: r.changes, Windows: r.windows.Append(nil)}
				for _, s := range r.slots {
					st.Slots = append(st.Slots, wire.Bytes(s))
				}
				if !changes {
					st.Changes = 0
				}
				for b := range r.blocks {
					m := r.blocks[b]
					st.Steps, st.Clocks = append(st.Steps, m.steps), append(st.Clocks, m.clock)
				}
				all[r.spec.ID] = st
			}
			r.mu.Unlock()
		}
	}
	return all
}

// StateBytes is the memory that the shards on a server take.
func StateBytes(s *Server) int64 { return s.load().StateBytes }

// OrderOf names the order that a control message to a server is, or its report; empty for
// others.
func OrderOf(msg any) string {
	switch m := msg.(type) {
	case aliveRequest:
		return "alive"
	case serverReport:
		return "report"
	case command:
		switch m.Kind {
		case commandOwns:
			return "owns"
		case commandHost:
			return "host"
		case commandEvict:
			return "evict"
		}
		return m.Step.String()
	}
	return ""
}

// LeaseWait is how long the leases of a former owner last at most.
const LeaseWait = leaseWait

// IsSure reports whether an order says that the owner before is dead or knows that it is none.
func IsSure(msg any) bool {
	m, ok := msg.(command)
	return ok && m.Sure
}

// ReportedCopies are the shards of which a server's report tells; none of other messages.
func ReportedCopies(msg any) (ids []shard.ID) {
	if m, ok := msg.(serverReport); ok {
		m.Copies.each(func(id shard.ID, _ shard.Copy) { ids = append(ids, id) })
	}
	return ids
}

// LostFollowers is how many followers a server's report says were lost; 0 for other messages.
func LostFollowers(msg any) int {
	if m, ok := msg.(serverReport); ok {
		return len(m.Lost)
	}
	return 0
}

// Peers is how many connections to followers the server keeps.
func (s *Server) Peers() (n int) {
	s.peerMu.Lock()
	defer s.peerMu.Unlock()
	for _, slot := range s.peers {
		select {
		case p := <-slot:
			if p != nil {
				n++
			}
			slot <- p
		default: // somebody dials
			n++
		}
	}
	return n
}

// RowRule is how the rows of a sparse layer apply the optimizer.
func (o Optimizer) RowRule(dim int) table.Rule { return o.rowRule(dim) }

// FailOver replaces a server that is known to be dead for what it had by these records.
func (c *Coordinator) FailOver(id shard.ServerID, held ...shard.Record) {
	records := map[shard.ID]shard.Record{}
	for _, r := range held {
		records[r.Assignment.Shard] = r
	}
	c.failover(id, true, records)
}

// DropFollower takes a server from the followers of a shard, as when the owner has lost it,
// and returns when the owner knows.
func (c *Coordinator) DropFollower(id shard.ID, follower shard.ServerID) {
	c.dropNow(id, follower, nil)
}

// Queued reports whether a move waits for something else that is done with its shard.
func (c *Coordinator) Queued(id shard.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queued[id] != nil
}

// LoseCopy makes a server forget its copy of a shard.
func (s *Server) LoseCopy(id shard.ID) {
	r := s.replica(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free()
	r.become(shard.Copy{})
}

// CopyOf is what a server holds of a shard.
func CopyOf(s *Server, id shard.ID) shard.Copy {
	r := s.replica(id)
	if r == nil {
		return shard.Copy{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copy
}

// RefOf is the process of a client.
func RefOf(c *Client) actor.Ref { return c.ref }

// RunOf is the run of a server that the coordinator knows.
func (c *Coordinator) RunOf(id shard.ServerID) uint64 { return c.info(id).Run }

// SpeaksOf reports whether a message is the report or the registration of a run of a server.
func SpeaksOf(msg any, run uint64) bool {
	switch m := msg.(type) {
	case serverReport:
		return m.Run == run
	case registerRequest:
		return m.Info.Run == run
	}
	return false
}

// IsOut reports whether a server knows that it is out of the job.
func IsOut(s *Server) bool { return s.out.Load() }

// ReportsLost reports whether a message says that a server has lost a follower.
func ReportsLost(msg any, server, follower shard.ServerID) bool {
	m, ok := msg.(serverReport)
	return ok && m.ID == server && slices.ContainsFunc(m.Lost, func(l lostFollower) bool { return l.Follower == follower })
}

// IsRoute reports whether a client asks with a message who owns what, or is told.
func IsRoute(msg any) bool {
	switch msg.(type) {
	case routesRequest, routesChanged:
		return true
	}
	return false
}

// RoutesTo reports whether an answer says that a server owns a shard, of the first page.
func RoutesTo(msg any, id shard.ID, server shard.ServerID) bool {
	m, ok := msg.(routesReply)
	return ok && int(id) < len(m.Owners) && m.Owners[id] > 0 && m.Servers[m.Owners[id]-1].ID == server
}
