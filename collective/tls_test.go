package collective_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/codec"
)

// certified is a TLS configuration for ranks of this host, which trust each other alone.
func certified(t *testing.T) *tls.Config {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: private}}, RootCAs: pool, ClientCAs: pool}
}

// With TLS all calls work, over several connections, and smaller groups too; memory is shared
// by nobody.
func TestTLS(t *testing.T) {
	leakless(t)
	secure := certified(t)
	groups := found(t, 4, overMemory(t, func(_ int, c *collective.Config) { c.TLS, c.Streams = secure, 2 }))
	parts := splitAll(t, groups, func(rank int) (int, int) { return rank % 2, 0 })
	for _, of := range [][]*collective.Group{groups, parts} {
		onAll(t, 4, func(rank int) error {
			g := of[rank]
			b, err := g.Alloc(background(t), collective.Float32, 200_000)
			if err != nil {
				return err
			}
			x := make([]float32, 1000)
			return errors.Join(
				g.AllReduce(background(t), b, b, collective.Sum), sumOnes(background(t), g, 300_000),
				g.AllReduceCompressed(background(t), x, x, collective.Sum, collective.Compression{Format: codec.E4M3}),
			)
		})
	}
}

// A rank with TLS talks to nobody who shows no certificate, whatever sockets that one offers.
func TestTLSHasNoWayAround(t *testing.T) {
	leakless(t)
	secure := certified(t)
	change := overMemory(t, nil)
	for _, with := range []int{0, 1} {
		ctx, cancel := context.WithTimeout(background(t), time.Second)
		for rank, err := range errorsOf(2, func(rank int) error {
			cfg := collective.Config{Rank: rank, Size: 2}
			change(rank, &cfg)
			cfg.Group = []string{"first", "second"}[with]
			if rank == with {
				cfg.TLS = secure
			}
			_, err := collective.Join(ctx, cfg)
			return err
		}) {
			require.Error(t, err, "rank %d, when rank %d has TLS", rank, with)
		}
		cancel()
	}
}
