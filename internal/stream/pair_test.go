package stream_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/leak"
	"github.com/elasticps/elasticps/internal/stream"
)

var (
	interruptible = []string{"tcp", "unix", "pipe", "tls"} // by a read deadline
	networks      = append(interruptible, "tcp"+detached, "unix"+detached)
)

// detached ends the name of a network whose streams are detached.
const detached = ", detached"

// socketPair returns the two ends of a connection: "tcp", "unix", "pipe", or "tls"
// over tcp.
func socketPair(tb testing.TB, network string) (net.Conn, net.Conn) {
	tb.Helper()
	switch network {
	case "pipe":
		return net.Pipe()
	case "tls":
		return tlsOver(tb, func() (net.Conn, net.Conn) { return socketPair(tb, "tcp") })
	}
	network = strings.TrimSuffix(network, detached)
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(tb.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	require.NoError(tb, err)
	defer l.Close()
	dialed, err := net.Dial(network, l.Addr().String())
	require.NoError(tb, err)
	accepted, err := l.Accept()
	require.NoError(tb, err)
	return dialed, accepted
}

// tlsOver returns the two ends of a TLS connection, after its handshake.
func tlsOver(tb testing.TB, pair func() (net.Conn, net.Conn)) (net.Conn, net.Conn) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(tb, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(tb, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(tb, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)

	a, b := pair()
	server := tls.Server(b, &tls.Config{SessionTicketsDisabled: true, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	client := tls.Client(a, &tls.Config{RootCAs: roots, ServerName: "test"})
	accepted := make(chan error, 1)
	go func() { accepted <- server.Handshake() }()
	require.NoError(tb, client.Handshake())
	require.NoError(tb, <-accepted)
	return client, server
}

// streamPair returns two connected Conns, closed at the end of the test.
func streamPair(tb testing.TB, network string, cfg stream.Config) (*stream.Conn, *stream.Conn) {
	tb.Helper()
	a, b := socketPair(tb, network)
	sa, sb := newStream(tb, network, a, cfg), newStream(tb, network, b, cfg)
	tb.Cleanup(func() {
		_ = sa.Close()
		_ = sb.Close()
	})
	return sa, sb
}

func newStream(tb testing.TB, network string, nc net.Conn, cfg stream.Config) *stream.Conn {
	c := stream.New(nc, cfg)
	if strings.HasSuffix(network, detached) {
		require.NoError(tb, c.Detach())
	}
	return c
}

// echo sends back what arrives, size bytes at a time, until its connection ends.
func echo(c *stream.Conn, size int) {
	for {
		p, err := c.Next(size)
		if err != nil {
			return
		}
		if c.Send(p) != nil {
			return
		}
	}
}

// leakless fails the test if it leaves goroutines or descriptors.
func leakless(t *testing.T) {
	t.Helper()
	leak.Check(t, 10*time.Second)
}
