package actor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/ergo-services/ergo/lib"
	"github.com/ergo-services/ergo/node"
)

// How our connections come into ergo. ergo listens, and runs Handshake.Accept of each
// connection inside its accept loop, where a silent client would hold up all others;
// so Accept takes a duplicate of the socket to a goroutine of ours and tells ergo to
// close its own. When a handshake of either side is done, ergo is asked to connect to
// that peer: our registrar names our own listener as the address, our handshake throws
// away what ergo dialled there and hands over the real connection instead. Nothing is
// ever dialled inside a send.

// ergoSuffix makes an ergo node name, which must have a host part, of ours.
const ergoSuffix = "@eps"

func ergoName(name string) string { return name + ergoSuffix }

// coreStart guards ergo's package variable of the last started node, which it writes
// when a node starts and reads when a connection comes or goes.
var coreStart sync.RWMutex

// adoptTimeout bounds how long ergo takes to accept a connection.
const adoptTimeout = 3 * time.Second

// start opens the listener, through ergo.
func (w *network) start(ctx context.Context) error {
	addr, err := net.ResolveTCPAddr("tcp", w.n.cfg.Listen)
	if err != nil {
		return err
	}
	host := addr.IP.String()
	if addr.IP == nil {
		host = "0.0.0.0"
	}
	if addr.Zone != "" {
		host += "%" + addr.Zone
	}
	const attempts = 16 // a port that was free may be taken by the time ergo opens it
	for range attempts {
		port, err := probePort(ctx, host, addr.Port)
		if err != nil {
			return err
		}
		if err = w.startErgo(host, port); err == nil {
			close(w.ready)
			return nil
		}
		if addr.Port != 0 {
			return fmt.Errorf("%w: %s: %w", ErrAddressInUse, w.n.cfg.Listen, err)
		}
	}
	return fmt.Errorf("%w: no free port on %s", ErrAddressInUse, host)
}

// probePort finds a free port for 0, and why another cannot be opened: ergo only says
// that it cannot.
func probePort(ctx context.Context, host string, port int) (uint16, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return 0, listenError(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port), nil
}

func (w *network) startErgo(host string, port uint16) error {
	w.host, w.port = host, port
	opts := node.Options{
		Creation:  uint32(w.n.incarnation) | 1,
		Listeners: []node.Listener{{Hostname: host, Listen: port}},
		Registrar: registrar{w},
		Handshake: acceptor{w: w},
		Proto:     wire{w},
		System:    node.System{DisableAnonMetrics: true},
	}
	coreStart.Lock()
	defer coreStart.Unlock()
	var err error
	w.n.ergo, err = node.StartWithContext(w.n.ctx, ergoName(w.n.name), "", opts)
	return err
}

// adopt makes an authenticated connection known to ergo and waits until it is served.
func (w *network) adopt(h *handshaken) (*conn, error) {
	c := newConn(w.n, h)
	name := ergoName(c.peer)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, w.disown(c, ErrClosed)
	}
	w.adopting[name] = c
	w.conns[c] = struct{}{}
	w.serving.Add(1)
	w.mu.Unlock()
	coreStart.RLock()
	err := w.n.ergo.Connect(name)
	coreStart.RUnlock()
	w.mu.Lock()
	mine := w.adopting[name] == c
	if mine {
		delete(w.adopting, name)
	}
	w.mu.Unlock()
	if mine { // ergo did not ask for it
		w.serving.Done()
		return nil, w.disown(c, fmt.Errorf("ergo did not take it: %v", err))
	}
	timer := time.NewTimer(adoptTimeout)
	defer timer.Stop()
	select {
	case <-c.up:
		return c, nil
	case <-timer.C:
	}
	if !c.taken.CompareAndSwap(false, true) { // at the last moment
		<-c.up
		return c, nil
	}
	w.serving.Done()
	return nil, w.disown(c, fmt.Errorf("ergo did not serve it within %v", adoptTimeout))
}

func (w *network) disown(c *conn, err error) error {
	c.fail(err)
	w.release(c.slot)
	return c.err
}

// wire implements node.ProtoInterface: it serves adopted connections.
type wire struct{ w *network }

// Init returns the connection that the handshake handed over.
func (wire) Init(_ context.Context, _ lib.NetReadWriter, _ string, d node.HandshakeDetails) (node.ConnectionInterface, error) {
	c, ok := d.Custom.(*conn)
	if !ok {
		return nil, ErrUnsupported
	}
	return c, nil
}

// Serve runs for as long as the connection lives.
func (p wire) Serve(ci node.ConnectionInterface, _ node.CoreRouter) {
	if c, ok := ci.(*conn); ok && c.taken.CompareAndSwap(false, true) {
		c.serve()
	}
	coreStart.RLock() // until Terminate; ergo reads its variable in between
}

// Terminate is called when ergo has told the monitors of processes on the peer.
func (p wire) Terminate(ci node.ConnectionInterface) {
	coreStart.RUnlock()
	c, ok := ci.(*conn)
	if !ok || !c.served {
		return
	}
	p.w.release(c.slot)
	p.w.serving.Done()
}

// serve reads until the connection ends, then tells everybody.
func (c *conn) serve() {
	n := c.n
	c.served = true
	n.background(func() { c.outbox.run(c) })
	n.background(c.heartbeat)
	n.net.live.Store(c.peer, c)
	close(c.up)
	n.log.Info("actor: peer up", "peer", c.peer, "addr", c.addr)
	if f := n.cfg.Observe.PeerUp; f != nil {
		f(c.peer)
	}
	c.read()
	n.net.live.CompareAndDelete(c.peer, c)
	c.flows.closeAll()
	c.dropMonitors()
	n.settleMonitors()
	level := slog.LevelWarn
	if errors.Is(c.err, errBye) || n.closing.Load() {
		level = slog.LevelInfo // one of the two was closed
	}
	n.log.Log(n.ctx, level, "actor: peer down", "peer", c.peer, "error", c.err.Error())
	if f := n.cfg.Observe.PeerDown; f != nil {
		f(c.peer, c.err)
	}
}

func listenError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %w", ErrAddressInUse, err)
	}
	return err
}
