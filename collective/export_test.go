package collective

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/elasticps/elasticps/internal/stream"
)

// RaceEnabled tells tests that everything takes ten times as long.
const RaceEnabled = raceEnabled

// AnnounceAfter is how long a call waits before a rank tells the others what it is.
const AnnounceAfter = announceAfter

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

// Impostor is a rank that comes to the rendezvous, says that it is of a host, dials rank 0 as
// a neighbour does, and then does with the socket beside the memory whatever hand says. size
// is that of an arena for so many places. It lets go when it is told to.
func Impostor(ctx context.Context, cfg Config, host string, places int, hand func(c *net.UnixConn, size int, sign func(mem []byte, epoch uint64, place int)) error) (letGo func(), err error) {
	cfg = cfg.withDefaults()
	o, err := openOrigin(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var conns []*stream.Conn
	letGo = func() {
		for _, c := range conns {
			_ = c.Close()
		}
		o.close()
	}
	said := o.self
	if host != "" {
		said.Host = host
	}
	r, err := storeRendezvous{cfg.Store}.meet(ctx, proposal{Group: cfg.Group, Self: said, Add: cfg.Size})
	if err != nil {
		return letGo, err
	}
	o.begin(r)
	for _, kind := range []linkKind{linkControl, linkDirect, linkData} {
		key := linkKey{Epoch: r.Epoch, From: o.self.Nonce, Kind: kind}
		c, _, err := o.dial(ctx, r.Members[0], hello{Group: cfg.Group, To: r.Members[0].Name, Link: key, Shares: kind == linkData})
		if err != nil {
			return letGo, err
		}
		conns = append(conns, c)
	}
	shape := shapeOf(places)
	sign := func(mem []byte, epoch uint64, place int) { (&arena{shape, mem}).sign(epoch, place) }
	return letGo, hand(conns[2].NetConn().(*net.UnixConn), shape.size, sign)
}

// Reach makes two ranks and a third one of another group, and lets the second dial the first by
// a unix socket that is the third one's, nobody's, or its own, or as one of another host. It
// returns what the connection is.
func Reach(ctx context.Context, cfg Config, whose string) (network string, err error) {
	var origins []*origin
	for i, group := range []string{"one", "one", "other"} {
		c := cfg
		c.Group, c.Rank, c.Size = group, i%2, 2
		c = c.withDefaults()
		o, err := openOrigin(ctx, c)
		if err != nil {
			return "", err
		}
		defer o.close()
		origins = append(origins, o)
	}
	to := origins[0].self
	switch whose {
	case "another's":
		to.Local = origins[2].self.Local
	case "nobody's", "nobody's, nor the address":
		to.Local = "@elasticps-collective-nobody"
	case "of another host":
		to.Host = "elsewhere"
	case "of this one, from another host": // where something else listens at that address
		to.Host, to.Address = "elsewhere", origins[2].self.Address
	}
	if whose == "nobody's, nor the address" {
		to.Address = "127.0.0.1:1"
	}
	key := linkKey{Epoch: 1, From: origins[1].self.Nonce, Kind: linkData}
	conn, _, err := origins[1].dial(ctx, to, hello{Group: "one", To: to.Name, Link: key, Shares: true})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	l, err := origins[0].take(ctx, key)
	if err != nil {
		return "", err
	}
	network = conn.NetConn().RemoteAddr().Network()
	if l.shared {
		network += ", shares"
	}
	l.close(ErrClosed)
	return network, nil
}

// HandOver is what a rank of two does with the socket beside the memory: it reports whether
// they share it. hand is the other rank, with its memory.
func HandOver(ctx context.Context, socket *net.UnixConn, hand func(fd int) error) (shared bool, err error) {
	shape := shapeOf(2)
	p := &hostMemory{ranks: 2, mates: make([]*mate, 2), log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), own: &arena{arenaShape: shape}}
	defer p.free()
	fds := make([]int, 2)
	for place := range fds {
		fd, mem, err := createMemory(shape.size)
		if err != nil {
			return false, err
		}
		defer closeDescriptor(fd)
		fds[place] = fd
		(&arena{shape, mem}).sign(1, place)
		if place == 0 {
			p.own.mem = mem
		} else {
			unmapMemory(mem)
		}
	}
	other := make(chan error, 1)
	go func() { other <- hand(fds[1]) }()
	conn := newConn(socket)
	m, err := p.share(ctx, link{conn: conn}, fds[0], 1, 1, 1, false)
	_ = conn.Close() // what was written is read all the same
	return m != nil, errors.Join(err, <-other)
}

// Contests are how many contests of algorithms this rank has begun, how many of them are
// decided, and how many are at the end of a round. No call may be under way.
func (g *Group) Contests() (all, decided, due int) {
	for _, c := range g.contests {
		all++
		if c.decided() {
			decided++
		}
		if c.due() {
			due++
		}
	}
	return all, decided, due
}
