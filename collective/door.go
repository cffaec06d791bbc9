package collective

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
)

// door is where connections to a rank arrive, for its group and those that were split from
// it: however many there are, a rank listens on one port.
type door struct {
	cfg       Config
	ctx       context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup
	listeners []net.Listener
	unproven  atomic.Int64

	mu      sync.Mutex
	origins map[string]*origin // behind it, by group
	closed  bool               // the last one has left
}

func newDoor(cfg Config) *door {
	d := &door{cfg: cfg, origins: map[string]*origin{}}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// listen begins to listen, and tells in self where.
func (d *door) listen(ctx context.Context, self *member) error {
	cfg := &d.cfg
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("collective: member %q: %w", cfg.Name, err)
	}
	self.Address = l.Addr().String()
	if cfg.Advertise != "" {
		self.Address = cfg.Advertise
	}
	if cfg.TLS != nil {
		c := cfg.TLS.Clone()
		c.ClientAuth = tls.RequireAndVerifyClientCert
		l = tls.NewListener(l, c)
	}
	d.listeners = append(d.listeners, l)
	if runtime.GOOS == "linux" && !cfg.TCPOnly && cfg.TLS == nil {
		name := "@elasticps-collective-" + self.Nonce // abstract: no file is left however the process ends
		if l, err := lc.Listen(ctx, "unix", name); err == nil {
			self.Local = name
			d.listeners = append(d.listeners, l)
		} else {
			cfg.Log.Info("collective: no unix socket", "member", cfg.Name, "err", err) // TCP serves as well
		}
	}
	for _, l := range d.listeners {
		d.running.Go(func() { d.accept(l) })
	}
	return nil
}

func (d *door) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.cfg.Log.Warn("collective: accept", "member", d.cfg.Name, "err", err)
			select { // out of files, perhaps
			case <-time.After(acceptPause):
				continue
			case <-d.ctx.Done():
				return
			}
		}
		d.running.Go(func() { d.serve(nc) })
	}
}

// serve finds out what a connection is for. Whatever arrives, the worst that happens is
// that it is closed.
func (d *door) serve(nc net.Conn) {
	conn := newConn(nc)
	stop := context.AfterFunc(d.ctx, func() { _ = conn.CloseWithError(ErrClosed) })
	defer stop()
	if d.unproven.Add(1) > maxUnproven {
		d.unproven.Add(-1)
		_ = conn.Close()
		return
	}
	_ = nc.SetReadDeadline(time.Now().Add(handshakeTimeout))
	h, err := d.greet(conn)
	d.unproven.Add(-1)
	if err == nil {
		err = d.pass(conn, h)
	}
	if err != nil {
		d.cfg.Log.Warn("collective: connection refused", "member", d.cfg.Name, "peer", nc.RemoteAddr(), "err", err)
		if !errors.Is(err, ErrClosed) { // else it looks for another host
			a := answer{Error: err.Error(), Conflict: errors.Is(err, ErrConflict)}
			_ = sendJSON(conn, a) // a peer that does not listen needs no reason
			_ = conn.Flush()
		}
		_ = conn.Close()
	}
}

// greet proves the secret in both directions and reads the hello.
func (d *door) greet(conn *stream.Conn) (h hello, err error) {
	nonce := stream.NewNonce()
	if err := conn.Send([]byte{magic & 0xff, magic >> 8, wireLevel}, nonce); err != nil {
		return h, err
	}
	raw, err := conn.Next(stream.NonceBytes + stream.ProofBytes)
	if err != nil {
		return h, err
	}
	theirs := append([]byte(nil), raw[:stream.NonceBytes]...)
	if !stream.SameProof(raw[stream.NonceBytes:], stream.Proof(d.cfg.Secret, "dialed", nonce, theirs)) {
		return h, fmt.Errorf("%w: the peer does not know the secret", ErrRefused)
	}
	if err := conn.Send(stream.Proof(d.cfg.Secret, "listened", theirs, nonce)); err != nil {
		return h, err
	}
	return h, readJSON(conn, &h)
}

// pass leads a connection to the group that it is for.
func (d *door) pass(conn *stream.Conn, h hello) error {
	d.mu.Lock()
	o := d.origins[h.Group]
	if o == nil {
		d.mu.Unlock()
		return fmt.Errorf("%w: there is no group %.128q here", ErrRefused, h.Group)
	}
	o.serving.Add(1)
	d.mu.Unlock()
	defer o.serving.Done()
	stop := context.AfterFunc(o.ctx, func() { _ = conn.CloseWithError(ErrClosed) })
	defer stop()
	if err := o.admit(conn, h); err != nil {
		if o.ctx.Err() != nil {
			return errors.Join(ErrClosed, err)
		}
		return err
	}
	return nil
}

// enter makes an origin known.
func (d *door) enter(o *origin) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return ErrClosed
	case d.origins[o.cfg.Group] != nil:
		return fmt.Errorf("%w: this rank is in a group %q already", ErrConflict, o.cfg.Group)
	}
	d.origins[o.cfg.Group] = o
	if o.cfg.Local != nil {
		o.cfg.Local.enter(o)
	}
	return nil
}

// leave forgets an origin, and reports whether it was the last one.
func (d *door) leave(o *origin) bool {
	if o.cfg.Local != nil {
		o.cfg.Local.leave(o)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.origins, o.cfg.Group)
	d.closed = len(d.origins) == 0
	return d.closed
}

// close stops listening.
func (d *door) close() {
	d.stop()
	for _, l := range d.listeners {
		_ = l.Close() // it is not used any more
	}
	d.running.Wait()
}
