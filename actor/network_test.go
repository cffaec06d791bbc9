package actor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/leak"
)

func TestConnectIsIdempotent(t *testing.T) {
	a, b := pair(t)
	first := a.livePeer("b")
	for range 3 {
		name, err := a.Connect(within(t, 5*time.Second), b.Addr())
		require.NoError(t, err)
		require.Equal(t, "b", name)
		name, err = b.Connect(within(t, 5*time.Second), a.Addr())
		require.NoError(t, err)
		require.Equal(t, "a", name)
	}
	require.Same(t, first, a.livePeer("b"))
	require.Len(t, a.Peers(), 1)
	require.Len(t, b.Peers(), 1)
}

// Both ends dial at the same time, in all orders: one connection is left, and all
// dials succeed.
func TestConnectAtOnce(t *testing.T) {
	for range 20 {
		nodes := make([]*Node, 4)
		for i := range nodes {
			nodes[i] = startNode(t, Config{})
		}
		var wg sync.WaitGroup
		for _, from := range nodes {
			for _, to := range nodes {
				if from == to {
					continue
				}
				wg.Go(func() {
					name, err := from.Connect(within(t, 10*time.Second), to.Addr())
					if err != nil || name != to.Name() {
						t.Errorf("%s to %s: %q, %v", from.Name(), to.Name(), name, err)
					}
				})
			}
		}
		wg.Wait()
		for _, n := range nodes {
			require.Len(t, n.Peers(), len(nodes)-1)
			spawn(t, n, "echo", echo)
		}
		for _, from := range nodes {
			for _, to := range nodes {
				_, err := from.Call(within(t, 5*time.Second), to.Ref("echo"), "x")
				require.NoError(t, err)
			}
		}
		for _, n := range nodes {
			require.NoError(t, n.Close())
		}
	}
}

func TestDialWhenNeeded(t *testing.T) {
	b := startNode(t, Config{Name: "b"})
	ref := spawn(t, b, "echo", echo)
	a := startNode(t, Config{Name: "a", Peers: map[string]string{"b": b.Addr()}})
	require.Empty(t, a.Peers())
	require.ErrorIs(t, a.TryCast(ref, "x"), ErrNodeDown, "TryCast does not dial")
	got, err := a.Call(within(t, 5*time.Second), ref, "x")
	require.NoError(t, err)
	require.Equal(t, "x", got)
	// b learned where a is, and dials back when it has to.
	back := spawn(t, a, "echo", echo)
	a.livePeer("b").fail(errTest)
	require.Eventually(t, func() bool {
		got, err := b.Call(within(t, time.Second), back, "y")
		return err == nil && got == "y"
	}, 5*time.Second, time.Millisecond)
	_, err = a.Call(within(t, time.Second), Ref{Node: "unknown", Name: "x"}, "x")
	require.ErrorIs(t, err, ErrNodeDown)
	require.ErrorContains(t, err, "no address")
	wrong := startNode(t, Config{Name: "c", Peers: map[string]string{"d": b.Addr()}})
	_, err = wrong.Call(within(t, time.Second), Ref{Node: "d", Name: "x"}, "x")
	require.ErrorIs(t, err, ErrNodeDown)
	require.ErrorContains(t, err, "there is b instead of d")
}

// A node that advertises an address is dialled there by whoever it has met, whichever of
// the two dialled first.
func TestAdvertise(t *testing.T) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a, b := startNode(t, Config{Name: "a"}), startNode(t, Config{Name: "b", Advertise: front.Addr().String()})
	require.Equal(t, front.Addr().String(), b.Addr())
	behind := net.JoinHostPort(b.net.host, strconv.Itoa(int(b.net.port)))
	var passed atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			nc, err := front.Accept()
			if err != nil {
				return
			}
			passed.Add(1)
			inner, err := net.Dial("tcp", behind)
			if err != nil {
				_ = nc.Close()
				continue
			}
			serving.Go(func() { _, _ = io.Copy(inner, nc); _ = inner.Close() })
			serving.Go(func() { _, _ = io.Copy(nc, inner); _ = nc.Close() })
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = a.Close() })
	t.Cleanup(func() { _ = front.Close() })
	ref := spawn(t, b, "echo", echo)
	_, err = b.Connect(within(t, 5*time.Second), a.Addr())
	require.NoError(t, err)
	require.Zero(t, passed.Load())
	for range 2 {
		n := passed.Load()
		require.Eventually(t, func() bool { return a.livePeer("b") != nil }, 5*time.Second, time.Millisecond, "a may learn later than b that they are connected")
		a.livePeer("b").fail(errTest)
		require.Eventually(t, func() bool {
			got, err := a.Call(within(t, time.Second), ref, "x")
			return err == nil && got == "x" && passed.Load() > n
		}, 5*time.Second, time.Millisecond)
	}
}

func TestNothingAnswers(t *testing.T) {
	a := startNode(t, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	_, err = a.Connect(within(t, 5*time.Second), addr)
	require.ErrorIs(t, err, ErrNodeDown)
	require.ErrorContains(t, err, addr)
	for _, bad := range []string{"", "host", "host:port:x", "127.0.0.1:99999"} {
		_, err = a.Connect(within(t, 5*time.Second), bad)
		require.Error(t, err, bad)
	}
	_, err = a.Connect(within(t, 5*time.Second), a.Addr())
	require.ErrorIs(t, err, ErrHandshake)
	require.ErrorContains(t, err, "itself")
}

func TestHandshakeRefusals(t *testing.T) {
	b := startNode(t, Config{Name: "b"})
	for _, c := range []struct {
		name string
		conf Config
		prep func(n *Node)
		want []string
	}{
		{"wrong secret", Config{Secret: "quite another one"}, nil, []string{"secret of b is another"}},
		{"same name", Config{Name: "b"}, nil, []string{"name b"}},
		{"wrong version", Config{}, func(n *Node) { n.net.version = 7 }, []string{"version 7 here", "1 there"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := startNode(t, c.conf)
			if c.prep != nil {
				c.prep(a)
			}
			_, err := a.Connect(within(t, 5*time.Second), b.Addr())
			require.ErrorIs(t, err, ErrHandshake)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
			require.False(t, Retryable(err))
			_, err = b.Connect(within(t, 5*time.Second), a.Addr())
			require.ErrorIs(t, err, ErrHandshake)
			require.Empty(t, b.Peers())
		})
	}
	good := startNode(t, Config{})
	_, err := good.Connect(within(t, 5*time.Second), b.Addr())
	require.NoError(t, err, "others are not disturbed")
}

// authority makes certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) config(t *testing.T) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      a.pool,
	}
}

func TestMutualTLS(t *testing.T) {
	good, evil := newAuthority(t), newAuthority(t)
	b := startNode(t, Config{Name: "b", TLS: good.config(t)})
	ref := spawn(t, b, "echo", echo)
	a := startNode(t, Config{Name: "a", TLS: good.config(t)})
	_, err := a.Connect(within(t, 5*time.Second), b.Addr())
	require.NoError(t, err)
	for i := range 100 {
		got, err := a.Call(within(t, 5*time.Second), ref, i)
		require.NoError(t, err)
		require.Equal(t, i, got)
	}

	mixed := evil.config(t)
	mixed.RootCAs = good.pool // believes b, but b does not believe it
	distrusting := good.config(t)
	distrusting.RootCAs = evil.pool
	for name, conf := range map[string]Config{
		"certificate of another authority": {TLS: mixed},
		"other side not trusted":           {TLS: distrusting},
		"no TLS":                           {Secret: testSecret},
		"TLS and a secret":                 {TLS: good.config(t), Secret: testSecret},
	} {
		t.Run(name, func(t *testing.T) {
			c := startNode(t, conf)
			_, err := c.Connect(within(t, 2*time.Second), b.Addr())
			require.Error(t, err)
			if name == "no TLS" {
				require.ErrorContains(t, err, "does it have TLS")
			} else {
				require.ErrorIs(t, err, ErrHandshake)
			}
			require.Empty(t, c.Peers())
		})
	}
	require.Len(t, b.Peers(), 1)
}

// TestTLSConnectionBreaks: a connection that ends in the TLS handshake says nothing about
// certificates, so the node counts as down, and a call with WithRetry goes on.
func TestTLSConnectionBreaks(t *testing.T) {
	good := newAuthority(t)
	b := startNode(t, Config{Name: "b", TLS: good.config(t)})
	ref := spawn(t, b, "echo", echo)
	for name, cut := range map[string]func(net.Conn){
		"closed at once": func(c net.Conn) { _ = c.Close() },
		"reset": func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		},
		"silent": func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			var attempts atomic.Int64
			go func() { // passes on to b from the second connection on
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					if attempts.Add(1) == 1 {
						cut(c)
						t.Cleanup(func() { _ = c.Close() })
						continue
					}
					to, err := net.Dial("tcp", b.Addr())
					if err != nil {
						_ = c.Close()
						continue
					}
					go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
					go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
				}
			}()
			t.Cleanup(func() { _ = l.Close() })
			a := startNode(t, Config{TLS: good.config(t)})
			_, err = a.Connect(within(t, time.Second), l.Addr().String())
			require.ErrorIs(t, err, ErrNodeDown)
			require.NotErrorIs(t, err, ErrHandshake)
			require.True(t, Retryable(err))
			attempts.Store(0)
			require.NoError(t, a.AddPeer("b", l.Addr().String()))
			got, err := Call[int](within(t, 10*time.Second), a, ref, 7, WithRetry())
			require.NoError(t, err)
			require.Equal(t, 7, got)
		})
	}
}

// TestNothingToWarnOf: nodes that both dial at once, and are closed, give an operator no warning.
func TestNothingToWarnOf(t *testing.T) {
	var out lockedBuffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))
	authority := newAuthority(t)
	for range 20 {
		a := startNode(t, Config{Name: "a", TLS: authority.config(t), Logger: log})
		b := startNode(t, Config{Name: "b", TLS: authority.config(t), Logger: log})
		var dials sync.WaitGroup
		dials.Go(func() { _, err := a.Connect(within(t, 10*time.Second), b.Addr()); assert.NoError(t, err) })
		dials.Go(func() { _, err := b.Connect(within(t, 10*time.Second), a.Addr()); assert.NoError(t, err) })
		dials.Wait()
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
	for _, usual := range []string{"refused", errBye.Error(), ErrClosed.Error()} {
		require.NotContains(t, out.String(), usual)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func TestConfigFaults(t *testing.T) {
	_, err := Start(context.Background(), Config{
		Name: "Node A", Listen: "0.0.0.0:0", Secret: "short", Heartbeat: time.Second, Suspicion: time.Second,
		MailboxSize: -1, Peers: map[string]string{"x y": "host"},
	})
	for _, part := range []string{
		`"Node A"`, "not loopback", "Secret has 5 bytes, want at least 8", "Suspicion is 1s", "MailboxSize is -1", `"x y"`, `"host"`,
	} {
		require.ErrorContains(t, err, part)
	}
	_, err = Start(context.Background(), Config{TLS: &tls.Config{InsecureSkipVerify: true}})
	for _, part := range []string{"no certificate", "neither ClientCAs nor RootCAs", "InsecureSkipVerify"} {
		require.ErrorContains(t, err, part)
	}
	for _, advertised := range []string{"nonsense", "127.0.0.1:nonsense", "127.0.0.1:0"} {
		_, err = Start(context.Background(), Config{Advertise: advertised})
		require.ErrorContains(t, err, advertised)
	}
	for _, listen := range []string{"nonsense", "127.0.0.1:nonsense", "192.0.2.1:0"} {
		_, err = Start(context.Background(), Config{Listen: listen, AllowInsecure: true})
		require.Error(t, err, listen)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Start(cancelled, Config{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAddressInUse(t *testing.T) {
	a := startNode(t, Config{})
	_, err := Start(context.Background(), Config{Listen: a.Addr()})
	require.ErrorIs(t, err, ErrAddressInUse)
	require.ErrorContains(t, err, a.Addr())
}

func TestT3PortReuse(t *testing.T) {
	hosts := []string{"127.0.0.1", "localhost"}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		require.NoError(t, l.Close())
		hosts = append(hosts, "::1")
	}
	if name, err := os.Hostname(); err == nil {
		if _, err := net.LookupHost(name); err == nil {
			hosts = append(hosts, name)
		}
	}
	for _, host := range hosts {
		t.Run(host, func(t *testing.T) {
			listen := net.JoinHostPort(host, "0")
			for range 10 {
				n, err := Start(within(t, 5*time.Second), Config{Name: "server", Listen: listen, Secret: testSecret, AllowInsecure: true})
				require.NoError(t, err)
				_, port, err := net.SplitHostPort(n.Addr())
				require.NoError(t, err)
				require.NotEqual(t, "0", port)
				listen = net.JoinHostPort(host, port) // from now on the same
				ref := spawn(t, n, "echo", echo)
				client := startNode(t, Config{Name: "client"})
				_, err = client.Connect(within(t, 5*time.Second), listen)
				require.NoError(t, err)
				got, err := client.Call(within(t, 5*time.Second), ref, "x")
				require.NoError(t, err)
				require.Equal(t, "x", got)
				require.NoError(t, n.Close())
				require.NoError(t, client.Close())
			}
		})
	}
}

// ownSockets returns the inodes of this process's sockets.
func ownSockets(t *testing.T) map[string]bool {
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	inodes := map[string]bool{}
	for _, fd := range fds {
		if link, err := os.Readlink(fd); err == nil && strings.HasPrefix(link, "socket:[") {
			inodes[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
		}
	}
	return inodes
}

// openSockets lists this process's sockets of a protocol as "local remote state".
func openSockets(t *testing.T, protocol string) []string {
	own := ownSockets(t)
	data, err := os.ReadFile("/proc/net/" + protocol)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	var list []string
	for _, line := range strings.Split(string(data), "\n")[1:] {
		if f := strings.Fields(line); len(f) > 9 && own[f[9]] {
			list = append(list, f[1]+" "+f[2]+" "+f[3])
		}
	}
	return list
}

// Nothing listens but the configured address, and nothing is sent to a host that was
// not named: there is no UDP socket, and every TCP connection is to 127.0.0.1.
func TestListensAndTalksOnlyWhereTold(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc/net")
	}
	a, b := pair(t)
	ref := spawn(t, b, "echo", echo)
	for i := range 100 {
		_, err := a.Call(within(t, 5*time.Second), ref, i)
		require.NoError(t, err)
	}
	want := map[string]bool{}
	for _, n := range []*Node{a, b} {
		addr, err := net.ResolveTCPAddr("tcp", n.Addr())
		require.NoError(t, err)
		want[hexAddr(addr)] = true
	}
	const listen = " 0A"
	listening := 0
	for _, s := range openSockets(t, "tcp") {
		local, rest, _ := strings.Cut(s, " ")
		if strings.HasSuffix(s, listen) {
			require.True(t, want[local], "listens on %s", local)
			listening++
			continue
		}
		require.True(t, strings.HasPrefix(rest, hexAddr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})[:8]), "talks to %s", rest)
	}
	require.Equal(t, 2, listening)
	for _, protocol := range []string{"tcp6", "udp", "udp6", "raw", "raw6"} {
		require.Empty(t, openSockets(t, protocol), protocol)
	}
	require.Empty(t, a.ergo.LoadedApplications(), "ergo's system application would report to a public host")
}

func hexAddr(a *net.TCPAddr) string {
	ip := a.IP.To4()
	const digits = "0123456789ABCDEF"
	var s []byte
	for _, b := range []byte{ip[3], ip[2], ip[1], ip[0]} {
		s = append(s, digits[b>>4], digits[b&15])
	}
	s = append(s, ':')
	for shift := 12; shift >= 0; shift -= 4 {
		s = append(s, digits[a.Port>>shift&15])
	}
	return string(s)
}

func TestNothingIsLeft(t *testing.T) {
	leak.Check(t, 5*time.Second)
	for range 3 {
		a := startNode(t, Config{Name: "a"})
		b := startNode(t, Config{Name: "b"})
		_, err := a.Connect(within(t, 5*time.Second), b.Addr())
		require.NoError(t, err)
		var f family
		_, err = b.Supervise(within(t, 5*time.Second), "sup", SupervisorSpec{Children: []ChildSpec{f.child("x", RestartAlways)}})
		require.NoError(t, err)
		w := spawnWatcher(t, a, "watcher", Options{})
		tell(t, a, "watcher", func(c *Context) error { return c.Monitor(b.Ref("x")) })
		require.NoError(t, a.Cast(within(t, 5*time.Second), b.Ref("x"), testMessage{Text: "crash"}))
		require.IsType(t, Down{}, w.expect(t))
		ref := spawn(t, b, "echo", echo)
		for range 100 {
			require.NoError(t, a.Cast(within(t, 5*time.Second), ref, "x"))
		}
		_, err = a.Call(within(t, 5*time.Second), ref, "x")
		require.NoError(t, err)
		_, _ = a.Call(within(t, 10*time.Millisecond), ref, testMessage{Text: "silent"})
		require.NoError(t, b.Close())
		require.NoError(t, b.Close(), "twice")
		require.NoError(t, a.Shutdown(within(t, 5*time.Second)))
		_, err = a.Call(within(t, time.Second), ref, "x")
		require.ErrorIs(t, err, ErrClosed)
		_, err = a.Call(within(t, time.Second), a.Ref("watcher"), "x")
		require.ErrorIs(t, err, ErrClosed)
		_, err = a.Spawn(within(t, time.Second), "late", ActorFunc(echo), Options{})
		require.ErrorIs(t, err, ErrClosed)
		_, err = a.Connect(within(t, time.Second), ref.Node+":1")
		require.Error(t, err)
	}
}

func TestShutdownNamesWhatIsStuck(t *testing.T) {
	n, err := Start(context.Background(), Config{})
	require.NoError(t, err)
	release := make(chan struct{})
	entered := make(chan struct{})
	ref, err := n.Spawn(within(t, 5*time.Second), "stuck", ActorFunc(func(*Context, any) error {
		close(entered)
		<-release
		return nil
	}), Options{})
	require.NoError(t, err)
	require.NoError(t, n.TryCast(ref, "x"))
	<-entered
	err = n.Shutdown(within(t, 20*time.Millisecond))
	require.ErrorContains(t, err, "stuck@")
	require.ErrorContains(t, err, "still running")
	close(release)
}

// A second node of a name that is in use is told so, soon and for good; the first is
// not disturbed.
func TestNameInUse(t *testing.T) {
	const secret = "shared by the test"
	home := startNode(t, Config{Name: "home", Secret: secret})
	first := startNode(t, Config{Name: "twin", Secret: secret})
	_, err := first.Connect(t.Context(), home.Addr())
	require.NoError(t, err)
	second := startNode(t, Config{Name: "twin", Secret: secret})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	_, err = second.Connect(ctx, home.Addr())
	require.ErrorIs(t, err, ErrHandshake)
	require.ErrorContains(t, err, `the name "twin" of this node is in use`)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Len(t, home.Peers(), 1)
	require.Len(t, first.Peers(), 1)
}
