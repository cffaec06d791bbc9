package collective

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
)

const (
	handshakeTimeout = 5 * time.Second
	maxUnproven      = 1024    // connections under way that have not said what they are for
	maxHello         = 1 << 20 // bytes of what they say; a roster of 1024 members is a quarter of it
	maxParked        = 16 << 10
	acceptPause      = 50 * time.Millisecond
)

// origin is where a rank is reached. It lives as long as the rank is in a group, and goes
// from one to the next.
type origin struct {
	cfg       Config
	self      member
	began     time.Time
	ctx       context.Context // of everything in the background
	stop      context.CancelFunc
	running   sync.WaitGroup
	listeners []net.Listener
	unproven  atomic.Int64

	mu      sync.Mutex
	latest  roster
	parked  map[linkKey]link // connections that came before they were asked for
	hosted  round            // for ranks that take this one for the host of the rendezvous
	changed chan struct{}    // closed when parked or hosted have changed
	closed  bool
	kept    []*allocation // that were not freed when their group was the latest
}

// linkKey says what a connection is for.
type linkKey struct {
	Epoch uint64
	From  string // nonce of the member that dialed
	Kind  linkKind
	Index int // of several data connections
}

type linkKind uint8

const (
	linkControl linkKind = iota + 1
	linkDirect
	linkData
	linkMeet // a proposal for the host of the rendezvous
)

// link is one connection of a group.
type link struct {
	conn   *stream.Conn
	lane   lane // within a process; conn is nil then
	shared bool // memory is handed over by it before it is used
}

func (l link) close(err error) {
	if l.conn != nil {
		_ = l.conn.CloseWithError(err) // what it had before is as good
	}
	if l.lane != nil {
		l.lane.close(err)
	}
}

// openOrigin begins to listen.
func openOrigin(ctx context.Context, cfg Config) (*origin, error) {
	o := &origin{cfg: cfg, began: time.Now(), parked: map[linkKey]link{}, changed: make(chan struct{})}
	o.ctx, o.stop = context.WithCancel(context.Background())
	nonce := hex.EncodeToString(stream.NewNonce()[:8])
	o.self = member{Name: cfg.Name, Rank: cfg.Rank, Nonce: nonce, Host: stream.HostID(), Node: cfg.Node}
	if cfg.Size == 0 {
		o.self.Rank = 0
	}
	if o.self.Node == "" {
		o.self.Node = o.self.Host
	}
	if cfg.Local != nil {
		cfg.Local.enter(o)
		return o, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		o.close()
		return nil, fmt.Errorf("collective: member %q: %w", cfg.Name, err)
	}
	o.self.Address = l.Addr().String()
	if cfg.Advertise != "" {
		o.self.Address = cfg.Advertise
	}
	if cfg.TLS != nil {
		c := cfg.TLS.Clone()
		c.ClientAuth = tls.RequireAndVerifyClientCert
		l = tls.NewListener(l, c)
	}
	o.accept(l)
	if runtime.GOOS != "linux" || cfg.TCPOnly || cfg.TLS != nil {
		return o, nil
	}
	name := "@elasticps-collective-" + nonce // abstract: no file is left however the process ends
	if l, err = lc.Listen(ctx, "unix", name); err != nil {
		cfg.Log.Info("no unix socket", "member", cfg.Name, "err", err)
		return o, nil // TCP serves as well
	}
	o.self.Local = name
	o.accept(l)
	return o, nil
}

func (o *origin) accept(l net.Listener) {
	o.listeners = append(o.listeners, l)
	o.running.Go(func() {
		for {
			nc, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				o.cfg.Log.Warn("collective: accept", "member", o.cfg.Name, "err", err)
				select { // out of files, perhaps
				case <-time.After(acceptPause):
					continue
				case <-o.ctx.Done():
					return
				}
			}
			o.running.Go(func() { o.serve(nc) })
		}
	})
}

// serve finds out what a connection is for. Whatever arrives, the worst that happens is
// that it is closed.
func (o *origin) serve(nc net.Conn) {
	conn := newConn(nc)
	stop := context.AfterFunc(o.ctx, func() { _ = conn.CloseWithError(ErrClosed) })
	defer stop()
	if o.unproven.Add(1) > maxUnproven {
		o.unproven.Add(-1)
		_ = conn.Close()
		return
	}
	_ = nc.SetReadDeadline(time.Now().Add(handshakeTimeout))
	h, err := o.greet(conn)
	o.unproven.Add(-1)
	if err == nil {
		err = o.admit(conn, h)
	}
	if err != nil {
		o.cfg.Log.Warn("collective: connection refused", "member", o.cfg.Name, "peer", nc.RemoteAddr(), "err", err)
		if o.ctx.Err() == nil { // else it looks for another host
			a := answer{Error: err.Error(), Conflict: errors.Is(err, ErrConflict)}
			_ = sendJSON(conn, a) // a peer that does not listen needs no reason
			_ = conn.Flush()
		}
		_ = conn.Close()
	}
}

func newConn(nc net.Conn) *stream.Conn {
	// Deadlines are those of the calls, which close the connection.
	return stream.New(nc, stream.Config{ReadAhead: headerBytes, WriteTimeout: 24 * time.Hour})
}

// hello is what the dialing end says when both have proven the secret.
type hello struct {
	Group    string
	To       string // name of the member that was dialed; for linkMeet nobody's
	Link     linkKey
	Shares   bool      `json:",omitempty"` // it shares memory, if it reaches a unix socket
	Proposal *proposal `json:",omitempty"`
}

// answer is what it hears.
type answer struct {
	Error    string  `json:",omitempty"`
	Conflict bool    `json:",omitempty"` // what Error wraps
	Shares   bool    `json:",omitempty"` // memory is shared by this connection
	Roster   *roster `json:",omitempty"`
	Host     *member `json:",omitempty"` // to ask instead
}

// greet proves the secret in both directions and reads the hello.
func (o *origin) greet(conn *stream.Conn) (h hello, err error) {
	nonce := stream.NewNonce()
	if err := conn.Send([]byte{magic & 0xff, magic >> 8, wireLevel}, nonce); err != nil {
		return h, err
	}
	raw, err := conn.Next(stream.NonceBytes + stream.ProofBytes)
	if err != nil {
		return h, err
	}
	theirs := append([]byte(nil), raw[:stream.NonceBytes]...)
	if !stream.SameProof(raw[stream.NonceBytes:], stream.Proof(o.cfg.Secret, "dialed", nonce, theirs)) {
		return h, fmt.Errorf("%w: the peer does not know the secret", ErrRefused)
	}
	if err := conn.Send(stream.Proof(o.cfg.Secret, "listened", theirs, nonce)); err != nil {
		return h, err
	}
	return h, readJSON(conn, &h)
}

// admit keeps a connection for the group that will ask for it, or answers a proposal.
func (o *origin) admit(conn *stream.Conn, h hello) error {
	if h.Group != o.cfg.Group {
		return fmt.Errorf("%w: this is group %q, not %.128q", ErrRefused, o.cfg.Group, h.Group)
	}
	if h.Link.Kind == linkMeet && h.Proposal != nil {
		return o.host(conn, *h.Proposal)
	}
	if h.To != o.self.Name {
		return fmt.Errorf("%w: this is member %q, not %.128q", ErrRefused, o.self.Name, h.To)
	}
	if h.Link.Kind == 0 || h.Link.Kind > linkData || h.Link.Index < 0 || h.Link.Index >= MaxStreams {
		return fmt.Errorf("%w: link of kind %d", ErrRefused, h.Link.Kind)
	}
	_ = conn.NetConn().SetReadDeadline(time.Time{}) // a connection that cannot shows when it is used
	_, local := conn.NetConn().(*net.UnixConn)
	shared := h.Shares && local && o.shares()
	if err := sendJSON(conn, answer{Shares: shared}); err != nil {
		return err
	}
	return o.park(h.Link, link{conn: conn, shared: shared})
}

// park keeps a connection until it is taken.
func (o *origin) park(key linkKey, l link) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, taken := o.parked[key]
	switch {
	case o.closed:
		return ErrClosed
	case key.Epoch < o.latest.Epoch:
		return fmt.Errorf("%w: epoch %d is over, it is %d", ErrRefused, key.Epoch, o.latest.Epoch)
	case taken:
		return fmt.Errorf("%w: a second connection of kind %d", ErrRefused, key.Kind)
	case len(o.parked) >= maxParked:
		return fmt.Errorf("%w: %d connections wait, limit %d", ErrRefused, len(o.parked), maxParked)
	}
	o.parked[key] = l
	o.notify()
	return nil
}

// notify wakes whoever waits for a change. The caller holds mu.
func (o *origin) notify() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// take waits for a connection.
func (o *origin) take(ctx context.Context, key linkKey) (link, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		if l, ok := o.parked[key]; ok {
			delete(o.parked, key)
			return l, nil
		}
		if ctx.Err() != nil {
			return link{}, context.Cause(ctx)
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		o.mu.Lock()
	}
}

// begin notes the latest group, and drops connections of those before it.
func (o *origin) begin(r roster) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest = r
	for key, l := range o.parked {
		if key.Epoch < r.Epoch {
			delete(o.parked, key)
			l.close(ErrClosed)
		}
	}
}

// close stops listening.
func (o *origin) close() {
	o.mu.Lock()
	again := o.closed
	o.closed = true
	parked := o.parked
	o.parked = nil
	o.mu.Unlock()
	if again {
		return
	}
	o.stop()
	for _, l := range o.listeners {
		_ = l.Close() // it is not used any more
	}
	for _, l := range parked {
		l.close(ErrClosed)
	}
	if o.cfg.Local != nil {
		o.cfg.Local.leave(o)
	}
	o.running.Wait()
}

// sendJSON and readJSON carry what is said before frames begin.
func sendJSON(conn *stream.Conn, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return conn.Send(binary.LittleEndian.AppendUint32(nil, uint32(len(raw))), raw)
}

func readJSON(conn *stream.Conn, v any) error {
	raw, err := conn.Next(4)
	if err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(raw)
	if n > maxHello {
		return fmt.Errorf("%w: greeting of %d bytes, limit %d", ErrRefused, n, maxHello)
	}
	text := make([]byte, n)
	if err := conn.ReadFull(text); err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%w: greeting: %w", ErrRefused, err)
	}
	return nil
}
