package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// direction is a way that bytes take through a link.
type direction int

const (
	toTarget direction = iota
	fromTarget
)

// gate lets bytes of one direction pass, or holds them.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while bytes may pass
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}

// pass returns when bytes may pass. It reports false when done comes first.
func (g *gate) pass(done <-chan struct{}) bool {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return true
	case <-done:
		return false
	}
}

// link is a TCP proxy before one address of a process. While a direction is cut, nothing
// arrives that way, no byte and no end of a connection: the sender's buffers fill. When it
// is healed, what was held back goes on, as with a network that is away for a while.
type link struct {
	addr, target string
	gates        [2]*gate // by direction

	mu       sync.Mutex
	listener net.Listener
	closed   chan struct{} // of the listener
	running  sync.WaitGroup
}

// newLink returns a link that is up.
func newLink(p *ports, target string) (*link, error) {
	k := &link{target: target, gates: [2]*gate{newGate(), newGate()}}
	var err error
	if k.addr, err = p.free(); err != nil {
		return nil, err
	}
	return k, k.up()
}

// up takes connections. A link that is up stays so.
func (k *link) up() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", k.addr)
	if err != nil {
		return fmt.Errorf("chaos: proxy: %w", err)
	}
	k.listener, k.closed = l, make(chan struct{})
	k.running.Go(func() { k.accept(l, k.closed) })
	return nil
}

// down refuses connections and ends those that there are, as the system does with a
// process that is dead.
func (k *link) down() {
	k.mu.Lock()
	if k.listener != nil {
		_ = k.listener.Close() // its accept ends
		close(k.closed)
		k.listener = nil
	}
	k.mu.Unlock()
	k.running.Wait()
}

func (k *link) cut(d direction)  { k.gates[d].set(false) }
func (k *link) heal(d direction) { k.gates[d].set(true) }

func (k *link) accept(l net.Listener, closed <-chan struct{}) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		k.running.Go(func() { k.serve(nc, closed) })
	}
}

// serve carries one connection until either end is over.
func (k *link) serve(client net.Conn, closed <-chan struct{}) {
	defer client.Close()
	// A connection is made when packets pass both ways.
	if !k.gates[toTarget].pass(closed) || !k.gates[fromTarget].pass(closed) {
		return
	}
	server, err := net.Dial("tcp", k.target)
	if err != nil {
		return
	}
	defer server.Close()
	over := make(chan struct{}) // one direction has seen its end
	end := sync.OnceFunc(func() { close(over) })
	k.running.Go(func() { k.carry(client, server, k.gates[toTarget], over); end() })
	k.running.Go(func() { k.carry(server, client, k.gates[fromTarget], over); end() })
	select {
	case <-over:
	case <-closed:
		end()
	}
}

const carryBytes = 64 << 10

// carry copies from one end to the other. The end of the connection waits at the gate as
// bytes do.
func (k *link) carry(from, to net.Conn, g *gate, over <-chan struct{}) {
	b := make([]byte, carryBytes)
	for {
		n, err := from.Read(b)
		if !g.pass(over) {
			return
		}
		if _, werr := to.Write(b[:n]); werr != nil || err != nil {
			return
		}
	}
}

// Addresses of processes and proxies are dialled again after a restart, so they lie below
// the ports that systems give to outgoing connections.
const (
	firstPort = 20_000
	numPorts  = 10_000
	blockSize = 500
)

// ports is a block of ports that no other program of this kind uses: it holds the first one of
// them until it is closed. A process that is to listen on a port may be started long after the
// port was found free.
type ports struct {
	net.Listener
	first, next int
}

func newPorts() (*ports, error) {
	var last error
	for _, block := range rand.Perm(numPorts / blockSize) {
		p := &ports{first: firstPort + block*blockSize}
		if p.Listener, last = net.Listen("tcp", loopback(p.first)); last == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("chaos: no free block of %d ports of %d to %d: %w", blockSize, firstPort, firstPort+numPorts-1, last)
}

// free returns an address that nobody listens on and that was not returned before.
func (p *ports) free() (string, error) {
	var last error
	for p.next < blockSize-1 {
		p.next++
		l, err := net.Listen("tcp", loopback(p.first+p.next))
		if err == nil {
			return l.Addr().String(), l.Close()
		}
		last = err
	}
	return "", fmt.Errorf("chaos: no free port left of %d to %d: %w", p.first, p.first+blockSize-1, last)
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
