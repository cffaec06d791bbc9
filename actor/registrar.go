package actor

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/lib"
	"github.com/ergo-services/ergo/node"
)

// registrar implements node.Registrar. It knows no address of anybody: connections
// are made here, and it leads ergo to those that are ready.
type registrar struct{ w *network }

// Register is told the port that ergo listens on.
func (r registrar) Register(_ context.Context, _ string, o node.RegisterOptions) error {
	if o.Port != r.w.port {
		return fmt.Errorf("listening on port %d instead of %d", o.Port, r.w.port)
	}
	return nil
}

// Resolve leads ergo to a connection that is ready, once, and to nothing else.
func (r registrar) Resolve(name string) (node.Route, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	c := r.w.adopting[name]
	if c == nil {
		return node.Route{}, lib.ErrNoRoute
	}
	delete(r.w.adopting, name)
	host := r.w.host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return node.Route{
		Node:    name,
		Host:    host,
		Port:    r.w.port,
		Options: node.RouteOptions{IsErgo: true, Handshake: adoption{c: c}},
	}, nil
}

// ResolveProxy finds no proxy.
func (registrar) ResolveProxy(string) (node.ProxyRoute, error) {
	return node.ProxyRoute{}, lib.ErrNoRoute
}

// RegisterProxy refuses.
func (registrar) RegisterProxy(string, int, node.ProxyFlags) error { return ErrUnsupported }

// UnregisterProxy refuses.
func (registrar) UnregisterProxy(string) error { return ErrUnsupported }

// Config has nothing.
func (registrar) Config() (node.RegistrarConfig, error) {
	return node.RegistrarConfig{}, ErrUnsupported
}

// ConfigItem has nothing.
func (registrar) ConfigItem(string) (etf.Term, error) { return nil, ErrUnsupported }

// SetConfigUpdateCallback refuses.
func (registrar) SetConfigUpdateCallback(func(name string, value etf.Term) error) error {
	return ErrUnsupported
}

// adoption implements node.HandshakeInterface for one connection that is ready.
type adoption struct {
	noHandshake
	c *conn
}

// Start drops what ergo dialled and hands over the real connection.
func (a adoption) Start(_ net.Addr, dialled lib.NetReadWriter, _ bool, _ string) (node.HandshakeDetails, error) {
	if nc, ok := dialled.(net.Conn); ok {
		_ = nc.Close() // nothing was sent on it
	}
	return node.HandshakeDetails{Name: ergoName(a.c.peer), Custom: a.c}, nil
}

// acceptor implements node.HandshakeInterface for the listener.
type acceptor struct {
	noHandshake
	w *network
}

// Accept takes a duplicate of the socket. The error makes ergo close its own without
// a word.
func (a acceptor) Accept(_ net.Addr, accepted lib.NetReadWriter, _ bool, _ string) (node.HandshakeDetails, error) {
	if tcp, ok := accepted.(*net.TCPConn); ok {
		a.w.takeOver(tcp)
	}
	return node.HandshakeDetails{}, io.EOF
}

// noHandshake refuses both sides of node.HandshakeInterface: ergo makes no connection
// by itself.
type noHandshake struct{}

// Init does nothing.
func (noHandshake) Init(string, uint32, node.Flags) error { return nil }

// Start refuses.
func (noHandshake) Start(net.Addr, lib.NetReadWriter, bool, string) (node.HandshakeDetails, error) {
	return node.HandshakeDetails{}, ErrUnsupported
}

// Accept refuses.
func (noHandshake) Accept(net.Addr, lib.NetReadWriter, bool, string) (node.HandshakeDetails, error) {
	return node.HandshakeDetails{}, ErrUnsupported
}

// Version is part of what ergo would register.
func (noHandshake) Version() node.HandshakeVersion { return protocolVersion }

// takeOver starts the handshake on a duplicate of an accepted socket.
func (w *network) takeOver(tcp *net.TCPConn) {
	from := tcp.RemoteAddr().String()
	select {
	case w.accepting <- struct{}{}:
	default:
		w.n.log.Warn("actor: connection refused, too many handshakes", "from", from, "bound", maxAccepting)
		return
	}
	nc, err := duplicate(tcp)
	if err != nil {
		<-w.accepting
		w.n.log.Warn("actor: connection refused", "from", from, "error", err.Error())
		return
	}
	if w.track(nc) {
		if w.n.background(func() { w.accept(nc) }) {
			return
		}
		w.untrack(nc)
	}
	<-w.accepting
	_ = nc.Close() // the node is closing
}

// duplicate returns the same socket under a descriptor of our own.
func duplicate(tcp *net.TCPConn) (net.Conn, error) {
	f, err := tcp.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
}
