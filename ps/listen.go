package ps

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/elasticps/elasticps/internal/stream"
)

// listen opens the sockets of the data plane: TCP, and on Linux an abstract unix
// socket, which leaves no file behind however the process ends.
func (s *Server) listen(ctx context.Context) error {
	if s.cfg.Listen == ListenNone {
		return nil
	}
	addr := s.cfg.Listen
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: data plane of server %q: address %s is in use: %w", ErrConflict, s.cfg.ID, addr, err)
	}
	if err != nil {
		return fmt.Errorf("ps: data plane of server %q: %w", s.cfg.ID, err)
	}
	s.listening = advertised(addr, l.Addr())
	s.info.Data = s.listening
	if s.cfg.TLS != nil {
		l = tls.NewListener(l, s.cfg.TLS)
		s.info.Secure = s.cfg.Advertise == "" // a proxy may differ
	}
	s.accept(l)
	if s.cfg.Advertise != "" {
		s.info.Data = s.cfg.Advertise
	}
	if runtime.GOOS != "linux" || s.cfg.TLS != nil || s.cfg.Advertise != "" {
		return nil
	}
	name := "@elasticps-" + randomID()
	if l, err = lc.Listen(ctx, "unix", name); err != nil {
		s.log.Info("no unix socket for the data plane", "server", s.cfg.ID, "err", err)
		return nil // TCP serves as well
	}
	s.info.Local = name
	s.accept(l)
	return nil
}

// checkTLS asks of a server's TLS what a node's must have as well.
func checkTLS(c *tls.Config) error {
	var errs []error
	if c != nil && len(c.Certificates) == 0 && c.GetCertificate == nil {
		errs = append(errs, errors.New("ps: TLS has no certificate"))
	}
	if c != nil && c.ClientCAs == nil && c.RootCAs == nil {
		errs = append(errs, errors.New("ps: TLS has neither ClientCAs nor RootCAs to verify others with"))
	}
	return errors.Join(errs...)
}

// mutual is TLS in which both sides verify each other, with one set of authorities if one is set.
func mutual(c *tls.Config) *tls.Config {
	if c == nil {
		return nil
	}
	c = c.Clone()
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if c.ClientCAs == nil {
		c.ClientCAs = c.RootCAs
	}
	if c.RootCAs == nil {
		c.RootCAs = c.ClientCAs
	}
	return c
}

// advertised is the address that others dial: the configured host with the port
// that the system chose. A wildcard is advertised as the host's name.
func advertised(configured string, actual net.Addr) string {
	host, _, _ := net.SplitHostPort(configured)
	_, port, err := net.SplitHostPort(actual.String())
	if err != nil {
		return actual.String()
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}

func (s *Server) accept(l net.Listener) {
	s.mu.Lock()
	s.listener = append(s.listener, l)
	s.mu.Unlock()
	var unproven atomic.Int64
	s.running.Go(func() {
		for {
			nc, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				s.log.Warn("data plane accept", "server", s.cfg.ID, "err", err)
				sleep(s.ctx, rejoinPause) // out of files, perhaps
				continue
			}
			s.running.Go(func() { s.serveConn(nc, &unproven) })
		}
	})
}

// pipe returns a data connection to this server within the process.
func (s *Server) pipe() *stream.Conn {
	mine, theirs := net.Pipe()
	s.spawn(func() { s.serveConn(theirs, nil) })
	return stream.New(mine, stream.Config{WriteTimeout: followTimeout})
}

func (s *Server) track(c *stream.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) untrack(c *stream.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func checkListen(addr string, secure bool) error {
	if addr == "" || addr == ListenNone {
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("ps: Listen %q: %w", addr, err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("ps: Listen %q: %w", addr, err)
	}
	if secure {
		return nil
	}
	ips, err := net.LookupIP(host)
	if host == "" || err != nil {
		return fmt.Errorf("ps: Listen %q: without TLS or AllowInsecure only a loopback address is allowed", addr)
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return fmt.Errorf("ps: Listen %q: without TLS or AllowInsecure only a loopback address is allowed", addr)
		}
	}
	return nil
}

func checkAdvertise(addr, listen string) error {
	if addr == "" {
		return nil
	}
	if listen == ListenNone {
		return fmt.Errorf("ps: Advertise %q with Listen %q: there is no socket to reach", addr, listen)
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("ps: Advertise %q: %w", addr, err)
	}
	return nil
}

func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crashes the program rather than fail
	return hex.EncodeToString(b[:])
}

// processName makes a name fit for an actor out of any name.
func processName(name string) string {
	var out strings.Builder
	for _, b := range []byte(name) {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '-', b == '_', b == '.':
			out.WriteByte(b)
		default:
			fmt.Fprintf(&out, "+%02x", b)
		}
	}
	if out.Len() > 96 {
		return out.String()[:80] + "+" + hex.EncodeToString([]byte(name[len(name)-7:]))
	}
	return out.String()
}
