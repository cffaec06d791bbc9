package collective

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"sync"
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

// origin is where a rank is reached, in one group. It lives as long as the rank is in that
// group, and goes from one to the next. The groups that were split from the first of them
// have origins of their own, which are reached where that one is.
type origin struct {
	cfg     Config
	self    member
	began   time.Time
	ctx     context.Context // of everything in the background
	stop    context.CancelFunc
	running sync.WaitGroup
	serving sync.WaitGroup // connections of this group that are being admitted
	door    *door

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

// newOrigin is one that is not reached yet.
func newOrigin(cfg Config, self member, d *door) *origin {
	o := &origin{cfg: cfg, self: self, began: time.Now(), door: d, parked: map[linkKey]link{}, changed: make(chan struct{})}
	o.ctx, o.stop = context.WithCancel(context.Background())
	return o
}

func newNonce() string { return hex.EncodeToString(stream.NewNonce()[:8]) }

// thisProcess is what tells this process from others; their ids may be equal, in containers.
var thisProcess = sync.OnceValue(newNonce)

// openOrigin begins to listen.
func openOrigin(ctx context.Context, cfg Config) (*origin, error) {
	self := member{
		Name: cfg.Name, Rank: cfg.Rank, Nonce: newNonce(), Host: stream.HostID(), Process: thisProcess(),
		Node: cfg.Node, Offer: cfg.Offer,
	}
	if cfg.Size == 0 {
		self.Rank = 0
	}
	if self.Node == "" {
		self.Node = self.Host
	}
	d := newDoor(cfg)
	if cfg.Local == nil {
		if err := d.listen(ctx, &self); err != nil {
			d.close()
			return nil, err
		}
	}
	o := newOrigin(cfg, self, d)
	if err := d.enter(o); err != nil {
		d.close()
		return nil, err
	}
	return o, nil
}

// branch is where the rank is reached in a group that is split from this one's.
func (o *origin) branch(group string, epoch, number uint64) (*origin, error) {
	cfg, self := o.cfg, o.self
	cfg.Group = group
	self.Nonce = branchNonce(self.Nonce, epoch, number)
	b := newOrigin(cfg, self, o.door)
	if err := o.door.enter(b); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
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

// admit keeps a connection for the group that will ask for it, or answers a proposal.
func (o *origin) admit(conn *stream.Conn, h hello) error {
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

// branchNonce tells the members of a group that is split from another from those of that one.
func branchNonce(nonce string, epoch, split uint64) string {
	return fmt.Sprintf("%s/%d.%d", nonce, epoch, split)
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

// close ends what is reached here; the last origin behind a door stops listening.
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
	for _, l := range parked {
		l.close(ErrClosed)
	}
	last := o.door.leave(o)
	o.serving.Wait()
	o.running.Wait()
	if last {
		o.door.close()
	}
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
