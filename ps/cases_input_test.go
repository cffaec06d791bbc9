package ps_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

// Bad input and doubled parties: a typed error for whoever is wrong, and everybody
// else goes on.

// certificates signs certificates for 127.0.0.1.
type certificates struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
	pool *x509.CertPool
}

func newCertificates(t *testing.T) *certificates {
	a := &certificates{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.root, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pool.AddCert(a.root)
	return a
}

// config presents a certificate that is valid until then and trusts the authority.
func (a *certificates) config(t *testing.T, until time.Time) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, &key.PublicKey, a.key)
	require.NoError(t, err)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      a.pool, ClientCAs: a.pool,
	}
}

func TestWrongCertificate(t *testing.T) {
	settled(t)
	ours, theirs := newCertificates(t), newCertificates(t)
	c := newCluster(t, smallJob(ps.Consistency{}))
	later := time.Now().Add(time.Hour)
	for _, id := range []shard.ServerID{"s1", "s2"} {
		c.serverWith(id, func(cfg *ps.ServerConfig) { cfg.TLS = ours.config(t, later) })
	}
	c.placed()
	dial := func(name string, config *tls.Config) *ps.Client {
		w, err := ps.Dial(c.ctx, ps.ClientConfig{Node: c.node(name), Name: name, Coordinator: c.ref(), TLS: config})
		require.NoError(t, err, "the control plane is another matter")
		t.Cleanup(func() { _ = w.Close() })
		return w
	}
	good := dial("good", ours.config(t, later))
	require.NoError(t, good.Push(c.ctx, "a", vector(smallElems, -1)))
	half := ours.config(t, later) // trusts us, but shows another authority's certificate
	half.Certificates = theirs.config(t, later).Certificates
	bare := ours.config(t, later)
	bare.Certificates = nil
	for name, config := range map[string]*tls.Config{
		"plain": nil, "other-authority": theirs.config(t, later), "not-ours": half, "none": bare,
		"expired": ours.config(t, time.Now().Add(-time.Hour)),
	} {
		bad := dial(name, config)
		ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
		err := bad.Push(ctx, "a", vector(smallElems, -1))
		cancel()
		require.ErrorIs(t, err, ps.ErrUnavailable, name)
		if config == nil {
			require.ErrorContains(t, err, "takes TLS only")
		}
		var op *ps.OpError
		require.ErrorAs(t, err, &op, name)
		require.NotEmpty(t, op.Server, name)
	}
	require.NoError(t, good.Push(c.ctx, "a", vector(smallElems, -1)))
	c.requireValue(good, 2)
	c.move(0, "s2") // servers among themselves as well
	c.move(0, "s1")
	c.requireValue(good, 2)
}

// TestOneSetOfAuthorities: what does for the TLS of a node does for that of a server and a client.
func TestOneSetOfAuthorities(t *testing.T) {
	settled(t)
	ours := newCertificates(t)
	c := newCluster(t, smallJob(ps.Consistency{}))
	roots, clients := ours.config(t, time.Now().Add(time.Hour)), ours.config(t, time.Now().Add(time.Hour))
	roots.ClientCAs, clients.RootCAs = nil, nil
	c.serverWith("s1", func(cfg *ps.ServerConfig) { cfg.TLS = roots })
	c.serverWith("s2", func(cfg *ps.ServerConfig) { cfg.TLS = clients })
	c.placed()
	for i, config := range []*tls.Config{roots, clients} {
		w, err := ps.Dial(c.ctx, ps.ClientConfig{Node: c.node(fmt.Sprint("w", i)), Name: "w", Coordinator: c.ref(), TLS: config})
		require.NoError(t, err)
		require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
		c.requireValue(w, float32(i+1))
		require.NoError(t, w.Close())
	}
	_, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: c.home, ID: "s3", Coordinator: c.ref(), TLS: &tls.Config{}})
	for _, fault := range []string{"no certificate", "neither ClientCAs nor RootCAs"} {
		require.ErrorContains(t, err, fault)
	}
}

func TestNumbersThatAreNone(t *testing.T) {
	settled(t)
	c := newCluster(t, smallJob(ps.Consistency{}), oneNode)
	c.server("s1")
	w := c.worker("w")
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.5} {
		for name, o := range map[string]ps.Optimizer{
			"sgd": ps.SGD(bad), "momentum": ps.Momentum(bad, 0.9), "momentum's own": ps.Momentum(0.1, bad),
			"adagrad": ps.Adagrad(bad), "adam": ps.Adam(bad), "adamw": ps.AdamW(bad, 0), "decay": ps.AdamW(0.1, bad),
		} {
			job := smallJob(ps.Consistency{})
			job.Optimizer = o
			_, err := ps.StartCoordinator(c.ctx, ps.CoordinatorConfig{Node: c.home, Job: job})
			require.Error(t, err, "%s %v", name, bad)
		}
	}
	require.NoError(t, w.Push(c.ctx, "b", vector(10, -1)))
	// A gradient that is none is the worker's own affair: it reaches its layer only.
	require.NoError(t, w.Push(c.ctx, "b", vector(10, float32(math.NaN()))))
	require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
	c.requireValue(w, 1)
}

// Two servers of one ID: the second is refused while the first lives.
func TestSameServerTwice(t *testing.T) {
	settled(t)
	job := smallJob(ps.Consistency{})
	job.Replicas = ps.NoReplicas // else s2 may follow before the first is gone
	c := newCluster(t, job)
	first := c.server("s1")
	c.placed()
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
	_, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: c.node("elsewhere"), ID: "s1", Coordinator: c.ref()})
	require.ErrorIs(t, err, ps.ErrConflict)
	require.ErrorContains(t, err, `"s1"`)
	onHome := func(id shard.ServerID) {
		s, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: c.home, ID: id, Coordinator: c.ref()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
	}
	onHome("s2")
	_, err = ps.StartServer(c.ctx, ps.ServerConfig{Node: c.home, ID: "s2", Coordinator: c.ref()})
	require.ErrorIs(t, err, actor.ErrNameTaken, "on the same node")
	require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
	c.requireValue(w, 2)
	c.oneOwner()

	// When the first is gone, one of its name may come. It does not have the shards.
	require.NoError(t, first.Close())
	eventually(t, "the first is gone", func() bool { return !c.isUp("s1") })
	onHome("s1")
	err = w.Push(c.ctx, "a", vector(smallElems, -1))
	require.ErrorIs(t, err, ps.ErrShardLost)
}

// Two workers of one name are two members; two nodes of one name are refused.
func TestSameWorkerTwice(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, smallJob(ps.Consistency{Mode: ps.BSP}), options...)
		c.server("s1")
		n := c.nodeFor("shared")
		w1, w2 := c.workerOn(n, "w"), c.workerOn(n, "w")
		c.step("a", smallElems, w1, w2)
		require.Equal(t, 2, c.status().Members)
		c.requireValue(w1, 2)
		require.NoError(t, w1.Close())
		c.step("a", smallElems, w2)
		c.requireValue(w2, 3)
	})
}

// TestEarlierCoordinatorIsClosedAgain: by then another one has its name, and goes on.
func TestEarlierCoordinatorIsClosedAgain(t *testing.T) {
	settled(t)
	c := newCluster(t, smallJob(ps.Consistency{}))
	earlier := c.coord
	require.NoError(t, earlier.Close())
	c.startCoordinator()
	require.NoError(t, earlier.Close())
	c.server("s1")
	c.placed()
}

func TestCoordinatorTwice(t *testing.T) {
	settled(t)
	c := newCluster(t, smallJob(ps.Consistency{}))
	c.server("s1")
	w := c.worker("w")
	_, err := ps.StartCoordinator(c.ctx, c.cfg)
	require.ErrorIs(t, err, actor.ErrNameTaken)
	// Another job does not take over the store of this one.
	other := c.cfg
	other.Node = c.node("other")
	other.Job.Optimizer = ps.SGD(2)
	_, err = ps.StartCoordinator(c.ctx, other)
	require.ErrorIs(t, err, ps.ErrConflict)
	other.Job = c.cfg.Job
	other.Job.Model = shard.Model{Layers: []shard.Layer{layer("a", 1)}}
	_, err = ps.StartCoordinator(c.ctx, other)
	require.ErrorIs(t, err, ps.ErrConflict)
	require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
	c.requireValue(w, 1)

	// A store that does not work makes the start fail, with its reason.
	broken, err := store.NewMemory(store.Config{})
	require.NoError(t, err)
	require.NoError(t, broken.Close())
	other.Store = broken
	_, err = ps.StartCoordinator(c.ctx, other)
	require.True(t, errors.Is(err, store.ErrClosed), "%v", err)
}

// Somebody with another secret does not get in at all.
func TestWrongSecret(t *testing.T) {
	settled(t)
	c := newCluster(t, smallJob(ps.Consistency{}))
	n, err := actor.Start(c.ctx, actor.Config{Name: "stranger", Secret: "another secret", Peers: map[string]string{"home": c.home.Addr()}})
	require.NoError(t, err)
	defer n.Close()
	ctx, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
	defer cancel()
	_, err = ps.StartWorker(ctx, ps.ClientConfig{Node: n, Name: "w", Coordinator: c.ref()})
	require.Error(t, err)
	require.ErrorContains(t, err, "handshake")
	c.server("s1")
	require.NoError(t, c.worker("w").Push(c.ctx, "a", vector(smallElems, -1)))
}
