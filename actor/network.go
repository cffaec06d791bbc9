package actor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxAccepting bounds the handshakes that are under way with those who dialled
	// us, who are nobody until it ends.
	maxAccepting = 128
	// Pauses between attempts to dial while the peer is busy with an earlier connection.
	dialPauseMin = 2 * time.Millisecond
	nameGrace    = time.Second // beyond twice the suspicion time
	dialPauseMax = 50 * time.Millisecond
)

// network is the node's connections to others: addresses, handshakes, live peers.
type network struct {
	n       *Node
	version uint16
	host    string // of the listener, an IP address
	port    uint16

	ready     chan struct{} // closed when the node can take connections
	accepting chan struct{} // a token per handshake of the accepting side
	live      sync.Map      // peer name to *conn
	serving   sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	addrs      map[string]string // of Config.Peers, AddPeer and Connect
	learned    map[string]string // where accepted peers came from
	slots      map[string]*slot
	adopting   map[string]*conn // by ergo's name, until ergo takes them
	handshakes map[net.Conn]struct{}
	conns      map[*conn]struct{} // all that ergo has or is about to get
}

// slot stands for the one connection to a peer, from the moment that it is certain or
// being dialled until ergo has forgotten it.
type slot struct {
	peer    string
	dialing bool          // by us; may still be overtaken by the peer's own dial
	free    chan struct{} // closed on release
}

func newNetwork(n *Node) *network {
	w := &network{
		n:          n,
		version:    protocolVersion,
		ready:      make(chan struct{}),
		accepting:  make(chan struct{}, maxAccepting),
		addrs:      make(map[string]string),
		learned:    make(map[string]string),
		slots:      make(map[string]*slot),
		adopting:   make(map[string]*conn),
		handshakes: make(map[net.Conn]struct{}),
		conns:      make(map[*conn]struct{}),
	}
	for name, addr := range n.cfg.Peers {
		w.addrs[name] = addr
	}
	return w
}

// claimDial takes the slot for a connection that we dialled, unless there is one.
func (w *network) claimDial(peer string) (*slot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, ErrClosed
	}
	if w.slots[peer] != nil {
		return nil, &busyError{peer}
	}
	s := &slot{peer: peer, dialing: true, free: make(chan struct{})}
	w.slots[peer] = s
	return s, nil
}

// claimAccept takes the slot for a connection that the peer dialled, or returns nil.
// When both dial at once the dial of the smaller name wins, on both sides.
func (w *network) claimAccept(peer string) *slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.slots[peer]; w.closed || s != nil && (!s.dialing || w.n.name < peer) {
		return nil
	}
	s := &slot{peer: peer, free: make(chan struct{})}
	w.slots[peer] = s
	return s
}

// confirm makes our dial certain, unless the peer's overtook it.
func (w *network) confirm(s *slot) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.dialing = false
	return w.slots[s.peer] == s
}

func (w *network) release(s *slot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		if c.slot == s {
			delete(w.conns, c)
		}
	}
	if w.slots[s.peer] == s {
		delete(w.slots, s.peer)
	}
	close(s.free)
}

// Connect dials the node at addr, makes itself known, and returns that node's name.
// If the two are connected already it returns the name at once. It waits until ctx
// ends, at most DefaultCallTimeout when ctx has no deadline. The error wraps
// ErrNodeDown when nothing answers there, or ErrHandshake, with both versions, or the
// secret, or the certificate named, when the nodes do not accept each other.
func (n *Node) Connect(ctx context.Context, addr string) (name string, err error) {
	ctx, cancel := withDefaultDeadline(ctx)
	defer cancel()
	if err := validateAddress(addr); err != nil {
		return "", opError("connect", text(addr), err)
	}
	n.net.eachConn(func(c *conn) {
		if c.addr == addr && c.failed() == nil {
			name = c.peer
		}
	})
	if name != "" {
		return name, nil
	}
	c, err := n.net.dialUntil(ctx, addr)
	if err != nil {
		return "", opError("connect", text(addr), err)
	}
	return c.peer, n.AddPeer(c.peer, addr)
}

// AddPeer tells where a node can be dialled, as Config.Peers does. A later call
// replaces an earlier one. It does not dial.
func (n *Node) AddPeer(name, addr string) error {
	if err := validateName("peer", name, nodeNameBytes); err != nil {
		return err
	}
	if err := validateAddress(addr); err != nil {
		return err
	}
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	if _, known := n.net.addrs[name]; !known && len(n.net.addrs) >= maxPeers {
		return fmt.Errorf("actor: %d peers are known, at most %d", len(n.net.addrs), maxPeers)
	}
	n.net.addrs[name] = addr
	return nil
}

// livePeer returns the connection to a peer that is up.
func (n *Node) livePeer(name string) *conn {
	if c, ok := n.net.live.Load(name); ok {
		return c.(*conn)
	}
	return nil
}

// peer returns the connection to a node, dialling it if it is not up.
func (n *Node) peer(ctx context.Context, name string) (*conn, error) {
	if c := n.livePeer(name); c != nil {
		return c, nil
	}
	if n.closing.Load() {
		return nil, ErrClosed
	}
	if name == n.name {
		return nil, fmt.Errorf("%w: %s is this node itself", ErrNodeDown, name)
	}
	addr := n.net.address(name)
	if addr == "" {
		return nil, n.unreachable(name)
	}
	c, err := n.net.dialUntil(ctx, addr)
	if err != nil {
		return nil, err
	}
	if c.peer != name {
		return nil, fmt.Errorf("%w: at %s there is %s instead of %s", ErrNodeDown, addr, c.peer, name)
	}
	return c, nil
}

func (n *Node) unreachable(name string) error {
	if n.closing.Load() {
		return ErrClosed
	}
	return fmt.Errorf("%w: %s is not connected, and no address of it is known", ErrNodeDown, name)
}

func (w *network) address(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if addr := w.addrs[name]; addr != "" {
		return addr
	}
	return w.learned[name]
}

// learn keeps the address of an accepted peer, among the latest 16,384.
func (w *network) learn(name, addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.learned[name]; !known && len(w.learned) >= maxPeers {
		for other := range w.learned {
			delete(w.learned, other)
			break
		}
	}
	w.learned[name] = addr
}

// dialUntil dials until there is a connection, ours or the one that the peer dialled.
// It tries again only while the peer is busy. A connection of an earlier run of this
// node is noticed within the suspicion time; a peer that is busy for much longer has
// a connection to another node of this name.
func (w *network) dialUntil(ctx context.Context, addr string) (*conn, error) {
	pause := dialPauseMin
	clash := time.Now().Add(2*w.n.cfg.Suspicion + nameGrace)
	var last error
	for {
		c, err := w.dial(ctx, addr)
		if last != nil && errors.Is(err, context.DeadlineExceeded) {
			err = last // says more
		}
		last = err
		var busy *busyError
		switch {
		case err == nil:
			return c, nil
		case errors.As(err, &busy):
			if c := w.n.livePeer(busy.peer); c != nil && c.failed() == nil {
				return c, nil
			}
			if time.Now().After(clash) {
				return nil, fmt.Errorf("%w: %w: the name %q of this node is in use", ErrHandshake, busy, w.n.name)
			}
		case !errors.Is(err, errNoHello):
			return nil, err
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, dialPauseMax)
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w: %w", ErrNodeDown, deadlineError(ctx.Err()), err)
		case <-w.n.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// dial makes one attempt.
func (w *network) dial(ctx context.Context, addr string) (*conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNodeDown, err)
	}
	if !w.track(nc) {
		_ = nc.Close() // it was not used
		return nil, ErrClosed
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	h, err := w.shakeDialing(ctx, nc, addr)
	if !stop() && err == nil {
		// The deadline may be set at any moment; start over with a connection that is whole.
		w.release(h.slot)
		err = fmt.Errorf("%w: %w", ErrNodeDown, deadlineError(ctx.Err()))
	}
	w.untrack(nc)
	if err != nil {
		_ = nc.Close() // the handshake's error is the one to tell
		return nil, err
	}
	return w.adopt(h)
}

// accept runs the handshake with somebody who dialled us.
func (w *network) accept(nc net.Conn) {
	defer func() { <-w.accepting }()
	defer w.untrack(nc)
	select {
	case <-w.ready:
	case <-w.n.ctx.Done():
		_ = nc.Close() // nothing was sent
		return
	}
	h, err := w.shakeAccepting(w.n.ctx, nc)
	if err != nil {
		_ = nc.Close() // the handshake's error is the one to tell
		var busy *busyError
		if !errors.As(err, &busy) && !errors.Is(err, errNoHello) && !w.n.closing.Load() {
			w.n.log.Warn("actor: connection refused", "from", nc.RemoteAddr().String(), "error", err.Error())
		}
		return
	}
	w.learn(h.peer.name, h.addr)
	if _, err := w.adopt(h); err != nil {
		w.n.log.Error("actor: connection lost", "peer", h.peer.name, "error", err.Error())
	}
}

// track keeps a connection under handshake, to close it when the node closes.
func (w *network) track(nc net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.handshakes[nc] = struct{}{}
	return true
}

func (w *network) untrack(nc net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.handshakes, nc)
}

func (w *network) eachConn(f func(*conn)) {
	w.live.Range(func(_, c any) bool {
		f(c.(*conn))
		return true
	})
}

// close says goodbye to all peers and waits until ergo has forgotten them.
func (w *network) close() {
	w.mu.Lock()
	w.closed = true
	for nc := range w.handshakes {
		_ = nc.Close() // its handshake fails
	}
	conns := make([]*conn, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	w.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			c.awaitNews()
			c.goodbye()
			c.fail(ErrClosed)
		})
	}
	wg.Wait()
	w.serving.Wait()
}

// goodbye lets the peer know at once, after all that was sent, the news of processes that
// have ended among it.
func (c *conn) goodbye() {
	e := c.n.encs.get()
	defer c.n.encs.put(e)
	e.begin(kindBye)
	if c.send(e.finish()) == nil {
		_ = c.s.Flush() // a peer that does not read any more sees the end either way
	}
}

// Addr returns the host:port that other nodes dial: Config.Advertise, or what the node
// listens on, with the real port.
func (n *Node) Addr() string {
	if n.cfg.Advertise != "" {
		return n.cfg.Advertise
	}
	return net.JoinHostPort(n.net.host, fmt.Sprint(n.net.port))
}

// Peer is a connected node.
type Peer struct {
	Name string
	Addr string        // where it can be dialled
	RTT  time.Duration // round-trip time of the probes, smoothed; zero before the first
}

// Peers returns the nodes that are connected now, sorted by name.
func (n *Node) Peers() []Peer {
	var peers []Peer
	n.net.eachConn(func(c *conn) {
		peers = append(peers, Peer{
			Name: c.peer,
			Addr: c.addr,
			RTT:  time.Duration(c.rtt.Load()),
		})
	})
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return peers
}

// RTT returns the smoothed round-trip time to a connected node; false when it is not
// connected or not probed yet.
func (n *Node) RTT(name string) (time.Duration, bool) {
	c := n.livePeer(name)
	if c == nil {
		return 0, false
	}
	rtt := c.rtt.Load()
	return time.Duration(rtt), rtt > 0
}
