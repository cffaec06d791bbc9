package storetest

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy stands between a store and its server and makes outages. All methods
// may be called from any number of goroutines.
type Proxy struct {
	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond // of what follows
	cut     bool
	stalled bool
	links   map[*link]struct{}
}

// link is a connection of a client and the one to the server that serves it.
type link struct {
	client, server net.Conn
	mute, closed   bool
}

// StartProxy starts a proxy on a free port of the loopback, in front of the
// server at the given host:port. It ends with the test.
func StartProxy(t *testing.T, server string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return start(t, server, listener)
}

// StartTLSProxy is StartProxy for clients that want TLS, of which the server
// knows nothing. It returns the configuration with which they trust the proxy.
func StartTLSProxy(t *testing.T, server string) (*Proxy, *tls.Config) {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(certified.Certificate())
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"h2"}})
	require.NoError(t, err)
	return start(t, server, listener), &tls.Config{RootCAs: trusted}
}

func start(t *testing.T, server string, listener net.Listener) *Proxy {
	p := &Proxy{server: server, listener: listener, links: make(map[*link]struct{})}
	p.changed.L = &p.mu
	p.running.Go(p.accept)
	t.Cleanup(func() {
		listener.Close()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Address is where stores find the proxy.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut closes every connection, and each new one as soon as it is made.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.stalled = true, false
	for l := range p.links {
		p.close(l)
	}
}

// Stall keeps the connections open, and takes new ones, but nothing comes
// through them.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.stalled = false, true
}

// Mute lets the present connections fall silent for good, as when a host on
// their way forgets them. New ones are well.
func (p *Proxy) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.mute = true
	}
}

// Restore ends a cut or a stall; what was held up goes on.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.stalled = false, false
	p.changed.Broadcast()
}

// close closes a link. The caller holds the lock.
func (p *Proxy) close(l *link) {
	l.client.Close()
	l.server.Close()
	l.closed = true
	delete(p.links, l)
	p.changed.Broadcast()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{client: client, server: server}
		p.mu.Lock()
		p.links[l] = struct{}{}
		if p.cut {
			p.close(l)
		}
		p.mu.Unlock()
		p.running.Go(func() { p.copy(l, server, client) })
		p.running.Go(func() { p.copy(l, client, server) })
	}
}

// copy carries bytes one way until either connection ends.
func (p *Proxy) copy(l *link, to, from net.Conn) {
	_, _ = io.Copy(gate{to, l, p}, from)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(l)
}

// gate writes to a connection when bytes may pass.
type gate struct {
	to    net.Conn
	link  *link
	proxy *Proxy
}

func (g gate) Write(b []byte) (int, error) {
	g.proxy.mu.Lock()
	for (g.proxy.stalled || g.link.mute) && !g.link.closed {
		g.proxy.changed.Wait()
	}
	g.proxy.mu.Unlock()
	return g.to.Write(b)
}
