package collective

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
)

// dialPause is the time between two attempts to reach a rank that may not listen yet.
const dialPause = 20 * time.Millisecond

// connectTime is what the connections to each rank may add to the time of a handshake.
const connectTime = 20 * time.Millisecond

// dial connects to a member: to its unix socket if it has one on this host, else by TCP. Ranks
// of one host do not always reach each other's sockets, in containers for example, or may find
// another rank's: then it is TCP as well. With TLS there is no other way: what a member says of
// itself does not get around its certificate.
func (o *origin) dial(ctx context.Context, to member, h hello) (*stream.Conn, answer, error) {
	if to.Local == "" || to.Host != o.self.Host || o.cfg.TCPOnly || o.cfg.TLS != nil {
		conn, a, err := o.dialAt(ctx, "tcp", to.Address, h)
		return conn, a, o.astray(to, err)
	}
	conn, a, err := o.dialAt(ctx, "unix", to.Local, h)
	if err == nil || a.Conflict || ctx.Err() != nil {
		return conn, a, err
	}
	conn, b, overTCP := o.dialAt(ctx, "tcp", to.Address, h)
	if overTCP != nil {
		return nil, b, fmt.Errorf("%w (by its unix socket: %v)", overTCP, err)
	}
	o.cfg.Log.Info("collective: no unix socket", "member", o.cfg.Name, "peer", to.Name, "err", err)
	return conn, b, nil
}

// astray says of an error what is most likely wrong: a hostname that stands for a loopback address
// where it is looked up, as in /etc/hosts of some systems, is no address for other hosts. (Where
// hosts are containers that share a network it is, so that it is tried.)
func (o *origin) astray(to member, err error) error {
	host, _, bad := net.SplitHostPort(to.Address)
	if ip := net.ParseIP(host); err == nil || bad != nil || to.Host == "" || to.Host == o.self.Host || !ip.IsLoopback() {
		return err
	}
	return fmt.Errorf("%w (member %q is of another host and gives a loopback address, %s: it must Listen on, or Advertise, one that is reached from here)", err, to.Name, to.Address)
}

// dialAt connects to an address.
func (o *origin) dialAt(ctx context.Context, network, address string, h hello) (*stream.Conn, answer, error) {
	var nc net.Conn
	var err error
	if network == "tcp" && o.cfg.TLS != nil {
		d := tls.Dialer{Config: o.cfg.TLS}
		nc, err = d.DialContext(ctx, network, address)
	} else {
		var d net.Dialer
		nc, err = d.DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, answer{}, err
	}
	conn := newConn(nc)
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseWithError(context.Cause(ctx)) })
	a, err := o.introduce(conn, h)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the first error is the one to report
		return nil, a, err
	}
	return conn, a, nil
}

// introduce proves the secret in both directions, says what the connection is for and
// waits for the answer.
func (o *origin) introduce(conn *stream.Conn, h hello) (a answer, err error) {
	_ = conn.NetConn().SetReadDeadline(time.Now().Add(handshakeTimeout))
	raw, err := conn.Next(3 + stream.NonceBytes)
	if err != nil {
		return a, err
	}
	if raw[0] != magic&0xff || raw[1] != magic>>8 || raw[2] != wireLevel {
		return a, fmt.Errorf("%w: %v does not speak version %d of this protocol", ErrRefused, conn.NetConn().RemoteAddr(), wireLevel)
	}
	theirs := append([]byte(nil), raw[3:]...)
	mine := stream.NewNonce()
	if err := conn.Send(mine, stream.Proof(o.cfg.Secret, "dialed", theirs, mine)); err != nil {
		return a, err
	}
	raw, err = conn.Next(stream.ProofBytes)
	if err != nil {
		return a, fmt.Errorf("%w (do both ranks know the same secret?)", err)
	}
	if !stream.SameProof(raw, stream.Proof(o.cfg.Secret, "listened", mine, theirs)) {
		return a, fmt.Errorf("%w: the rank at %v does not know the secret", ErrRefused, conn.NetConn().RemoteAddr())
	}
	if err := sendJSON(conn, h); err != nil {
		return a, err
	}
	if h.Link.Kind == linkMeet {
		_ = conn.NetConn().SetReadDeadline(time.Time{}) // the context bounds it
	}
	if err := readJSON(conn, &a); err != nil {
		return a, err
	}
	_ = conn.NetConn().SetReadDeadline(time.Time{})
	switch {
	case a.Conflict:
		return a, fmt.Errorf("%w: %s", ErrConflict, a.Error)
	case a.Error != "":
		return a, fmt.Errorf("%w: %s", ErrRefused, a.Error)
	}
	return a, nil
}

// connect makes the connections of a group: this rank dials those before it and is
// dialed by those behind. The error names who could not be reached. All of them have come
// to the rendezvous a moment ago, so that it takes no longer than connections do.
func (o *origin) connect(ctx context.Context, r roster, shared *hostMemory, fd int) ([]*peer, error) {
	began := time.Now()
	ctx, stop := context.WithTimeout(ctx, handshakeTimeout+time.Duration(len(r.Members))*connectTime)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rank := r.rankOf(o.self.Name)
	peers := make([]*peer, len(r.Members))
	failed := make(chan *MissingError, len(peers))
	for i, m := range r.Members {
		if i == rank {
			failed <- nil
			continue
		}
		go func() {
			p, err := o.connectTo(ctx, r, rank, i, shared, fd)
			if err != nil {
				failed <- &MissingError{Names: []string{m.Name}, Addresses: []string{m.Address}, Waited: time.Since(began), Err: err}
				if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					cancel(fmt.Errorf("collective: member %q: %w", m.Name, err))
				}
				return
			}
			peers[i] = p
			failed <- nil
		}()
	}
	var missing *MissingError
	for range peers {
		switch e := <-failed; {
		case e == nil:
		case missing == nil:
			missing = e
		case errors.Is(missing.Err, context.Canceled):
			missing = e // that one was only told to stop
		case errors.Is(e.Err, context.DeadlineExceeded):
			missing.Names, missing.Addresses = append(missing.Names, e.Names...), append(missing.Addresses, e.Addresses...)
		}
	}
	if missing == nil {
		return peers, nil
	}
	for _, p := range peers {
		if p != nil {
			_ = p.control.Close()
			p.data.close(missing)
			p.direct.close(missing)
		}
	}
	if i := r.rankOf(missing.Names[0]); !unreached(missing.Err) {
		return nil, &RankError{Ranks: []int{i}, Names: missing.Names[:1], Reason: missing.Err.Error()}
	}
	return nil, missing
}

// unreached reports whether an error leaves open whether the rank lives.
func unreached(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrRefused)
}

// streams is the number of data connections to a member; both ends find the same.
func (o *origin) streams(to member) int {
	switch {
	case o.cfg.Streams > 0:
		return o.cfg.Streams
	case to.Host == o.self.Host:
		return 1
	}
	return 4
}

// maxStreams is that number for the member to whom there are most.
func (o *origin) maxStreams(r roster) int {
	most := 1
	for _, m := range r.Members {
		if m.Name != o.self.Name && o.cfg.Local == nil {
			most = max(most, o.streams(m))
		}
	}
	return most
}

// connectTo makes all connections to one rank.
func (o *origin) connectTo(ctx context.Context, r roster, rank, i int, shared *hostMemory, fd int) (*peer, error) {
	p := &peer{rank: i}
	to := r.Members[i]
	keys := []linkKey{{Kind: linkControl}}
	streams := 1
	if o.cfg.Local == nil {
		streams = o.streams(to)
	}
	for _, kind := range []linkKind{linkDirect, linkData} {
		for index := range streams {
			keys = append(keys, linkKey{Kind: kind, Index: index})
		}
	}
	links := make([]link, 0, len(keys))
	for _, key := range keys {
		key.Epoch = r.Epoch
		var l link
		var err error
		if i < rank {
			key.From = o.self.Nonce
			l, err = o.open(ctx, to, key)
		} else {
			key.From = to.Nonce
			l, err = o.take(ctx, key)
		}
		if err != nil {
			closeLinks(links, err)
			return nil, err
		}
		links = append(links, l)
	}
	p.control = links[0].conn
	if o.cfg.Local != nil {
		p.direct, p.data = links[1].lane, links[2].lane
		return p, nil
	}
	if data := 1 + streams; links[data].shared {
		m, err := shared.share(ctx, links[data], fd, r.Epoch, i, o.place(r, i), i < rank)
		if err != nil {
			closeLinks(links, err)
			return nil, err
		}
		if m != nil {
			p.direct, p.data = o.laneOver(r, to, links[1:data]), m.lane
			closeLinks(links[data+1:], ErrClosed)
			return p, nil
		}
	}
	p.direct, p.data = o.laneOver(r, to, links[1:1+streams]), o.laneOver(r, to, links[1+streams:])
	return p, nil
}

// laneOver is a lane over connections to a member. Where ranks share processors, one that
// waits does so in the kernel, unless it would keep a processor of the runtime from another
// rank of its process.
func (o *origin) laneOver(r roster, to member, links []link) *socketLane {
	together := 0 // ranks of this process
	for _, m := range r.Members {
		if m.Process == o.self.Process {
			together++
		}
	}
	crowded := 2*r.on(o.self.Host) > runtime.NumCPU() || 2*together > runtime.GOMAXPROCS(0)
	var conns []*stream.Conn
	for _, l := range links {
		if crowded && together == 1 && to.Host == o.self.Host {
			_ = l.conn.Detach() // an error is that of the first call on it
		}
		conns = append(conns, l.conn)
	}
	return newSocketLane(conns, crowded)
}

func closeLinks(links []link, err error) {
	for _, l := range links {
		l.close(err)
	}
}

// open dials one connection. A rank that does not listen is tried again: it may be about
// to; one that refuses is not.
func (o *origin) open(ctx context.Context, to member, key linkKey) (link, error) {
	if o.cfg.Local != nil {
		return o.openLocal(to, key)
	}
	conn, a, err := o.dial(ctx, to, hello{Group: o.cfg.Group, To: to.Name, Link: key, Shares: key.Kind == linkData && key.Index == 0 && o.shares()})
	return link{conn: conn, shared: a.Shares}, err
}

// openLocal connects two ranks of one process.
func (o *origin) openLocal(to member, key linkKey) (link, error) {
	peer := o.cfg.Local.origin(to.Nonce)
	if peer == nil {
		return link{}, fmt.Errorf("%w: member %q is gone", ErrRankLost, to.Name)
	}
	var mine, theirs link
	if key.Kind == linkControl {
		a, b := net.Pipe()
		mine.conn, theirs.conn = newConn(a), newConn(b)
	} else {
		mine.lane, theirs.lane = memoryLanes()
	}
	err := peer.park(key, theirs)
	if err != nil {
		mine.close(err)
		theirs.close(err)
	}
	return mine, err
}
