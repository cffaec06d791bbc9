package zkstore_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/storetest"
	"github.com/elasticps/elasticps/shard/store/zkstore"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// sessionTimeout is the least that a server with default settings grants.
const sessionTimeout = 4 * time.Second

// server is the address of a ZooKeeper server, from ELASTICPS_ZOOKEEPER.
func server(t *testing.T) string {
	t.Helper()
	address := os.Getenv("ELASTICPS_ZOOKEEPER")
	if address == "" {
		t.Skip("ELASTICPS_ZOOKEEPER is not set: the host:port of a ZooKeeper server")
	}
	return address
}

// root is a root that no other test has, removed at the end.
func root(t *testing.T) string {
	t.Helper()
	name := "/elasticps-test/" + rand.Text()
	client := raw(t)
	t.Cleanup(func() { require.NoError(t, remove(client, name)) })
	return name
}

func remove(client *zk.Conn, at string) error {
	names, _, err := client.Children(at)
	for _, name := range names {
		err = errors.Join(err, remove(client, path.Join(at, name)))
	}
	if err := errors.Join(err, client.Delete(at, -1)); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// raw is a client without a store, connected and at rest.
func raw(t *testing.T) *zk.Conn {
	t.Helper()
	client, events, err := zk.Connect([]string{server(t)}, sessionTimeout, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	for ev := range events {
		if ev.State == zk.StateHasSession {
			break
		}
	}
	_, _, err = client.Exists("/")
	require.NoError(t, err)
	return client
}

func open(t *testing.T, address, root string) *zkstore.Store {
	t.Helper()
	s, err := zkstore.Open(t.Context(), zkstore.Config{Servers: []string{address}, Root: root, SessionTimeout: sessionTimeout})
	require.NoError(t, err)
	return s
}

func TestZooKeeper(t *testing.T) {
	address := server(t)
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, address, root(t)) })
}

func TestZooKeeperOutages(t *testing.T) {
	storetest.RunOutages(t, server(t), func(t *testing.T) func(string) store.Store {
		name := root(t)
		return func(address string) store.Store { return open(t, address, name) }
	})
}

// TestForeignNodes puts nodes under the root that no store has written: who
// meets them is told which, and neither watches nor the other keys are affected.
func TestForeignNodes(t *testing.T) {
	name, client := root(t), raw(t)
	s := open(t, server(t), name)
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rev, err := s.CompareAndSwap(ctx, "good", 0, []byte("v"))
	require.NoError(t, err)
	copied, _, err := client.Get(name + "/keys/good")
	require.NoError(t, err)
	foreign := map[string][]byte{
		"/keys/a%2fb":                       copied, // the name of no key
		"/keys/" + strings.Repeat("x", 513): copied,
		"/keys/copied":                      copied, // another key's data
		"/keys/text":                        []byte("hello"),
		"/keys/empty":                       {},
		"/leases/text":                      []byte("hello"),
		"/leases/00000000000000ff":          []byte("hello"),
	}
	for node, data := range foreign {
		_, err := client.Create(name+node, data, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	_, err = s.List(ctx, "")
	require.ErrorIs(t, err, store.ErrCorrupt)
	for node := range foreign {
		if strings.HasPrefix(node, "/keys/") {
			require.ErrorContains(t, err, node[:min(len(node), 100)])
		}
	}
	for _, key := range []string{"copied", "text", "empty"} {
		_, err = s.Get(ctx, key)
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.ErrorContains(t, err, name+"/keys/"+key)
		_, err = s.CompareAndSwap(ctx, key, 0, []byte("v"))
		require.ErrorIs(t, err, store.ErrCorrupt)
		_, err = s.CompareAndSwap(ctx, key, rev, nil)
		require.ErrorIs(t, err, store.ErrCorrupt)
	}
	require.ErrorIs(t, s.KeepAlive(ctx, 255), store.ErrCorrupt)

	list, err := s.List(ctx, "good")
	require.NoError(t, err)
	require.Len(t, list, 1)
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	require.Equal(t, rev, (<-events).Entry.Revision)
	require.Equal(t, store.Synced, (<-events).Kind)
	next, err := s.CompareAndSwap(ctx, "good", rev, []byte("w"))
	require.NoError(t, err)
	require.Equal(t, next, (<-events).Entry.Revision)
	lease, err := s.Grant(ctx, 50*time.Millisecond)
	require.NoError(t, err)
	_, err = s.CompareAndSwapLease(ctx, lease, "good", next, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, store.Put, (<-events).Kind)
	require.Equal(t, store.Delete, (<-events).Kind, "leases go on ending")
	for node, data := range foreign {
		held, _, err := client.Get(name + node)
		require.NoError(t, err)
		require.Equal(t, string(data), string(held), "left as it is")
	}
}

// TestForeignJournal opens a root whose journal is no store's.
func TestForeignJournal(t *testing.T) {
	name, client := root(t), raw(t)
	s := open(t, server(t), name)
	defer s.Close()
	whole, stat, err := client.Get(name + "/seq")
	require.NoError(t, err)
	later := slices.Clone(whole)
	later[4]++ // the format
	binary.LittleEndian.PutUint32(later, crc32.Checksum(append([]byte("seq"), later[4:]...), crc32.MakeTable(crc32.Castagnoli)))
	for text, data := range map[string][]byte{
		"wrong checksum": []byte("what is here is certainly not a journal"), "0 bytes": {}, "format 2, this program reads 1": later,
	} {
		stat, err = client.Set(name+"/seq", data, stat.Version)
		require.NoError(t, err)
		_, err = zkstore.Open(t.Context(), zkstore.Config{Servers: []string{server(t)}, Root: name})
		require.ErrorIs(t, err, store.ErrCorrupt)
		require.ErrorContains(t, err, name+"/seq")
		require.ErrorContains(t, err, text)
		_, err = s.CompareAndSwap(t.Context(), "k", 0, []byte("v"))
		require.ErrorIs(t, err, store.ErrCorrupt)
		held, _, err := client.Get(name + "/seq")
		require.NoError(t, err)
		require.Equal(t, string(data), string(held), "left as it is")
	}
	_, err = client.Set(name+"/seq", whole, stat.Version)
	require.NoError(t, err)
	_, err = s.CompareAndSwap(t.Context(), "k", 0, []byte("v"))
	require.NoError(t, err)
}

// TestListIsOfOneMoment reads all keys while others change them: each listing is of one
// moment, in which the two halves of a pair differ by one change at most.
func TestListIsOfOneMoment(t *testing.T) {
	name := root(t)
	writer, reader := open(t, server(t), name), open(t, server(t), name)
	defer writer.Close()
	defer reader.Close()
	const rounds = 60
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	written := make(chan error, 1)
	go func() {
		var left, right store.Revision
		var err error
		for i := range rounds {
			if left, err = writer.CompareAndSwap(ctx, "left", left, fmt.Append(nil, i)); err != nil {
				break
			}
			if right, err = writer.CompareAndSwap(ctx, "right", right, fmt.Append(nil, i)); err != nil {
				break
			}
		}
		written <- err
	}()
	for done := false; !done; {
		select {
		case err := <-written:
			require.NoError(t, err)
			done = true
		default:
		}
		list, err := reader.List(ctx, "")
		require.NoError(t, err)
		values := []int{-1, -1}
		for i, e := range list {
			values[i], err = strconv.Atoi(string(e.Value))
			require.NoError(t, err)
		}
		require.Contains(t, []int{0, 1}, values[0]-values[1], "left %d, right %d", values[0], values[1])
	}
}

// TestLeaseIsFull attaches as many keys as one request can delete.
func TestLeaseIsFull(t *testing.T) {
	s, err := zkstore.Open(t.Context(), zkstore.Config{Servers: []string{server(t)}, Root: root(t), MaxRequestBytes: zkstore.MinRequestBytes})
	require.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	lease, err := s.Grant(ctx, time.Hour)
	require.NoError(t, err)
	long := strings.Repeat("\x00", store.MaxKeyBytes-3)
	const most = 24
	for i := range most {
		_, err = s.CompareAndSwapLease(ctx, lease, fmt.Sprintf("%s%03d", long, i), 0, []byte("v"))
		require.NoError(t, err)
	}
	_, err = s.CompareAndSwapLease(ctx, lease, "more", 0, []byte("v"))
	require.ErrorIs(t, err, store.ErrLimit)
	require.ErrorContains(t, err, "is 25, must be 0 to 24")
	require.NoError(t, s.Revoke(ctx, lease))
	list, err := s.List(ctx, "")
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestShortLeases lets many leases run out: each ends, and none early.
func TestShortLeases(t *testing.T) {
	s := open(t, server(t), root(t))
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	const leases, ttl = 20, 300 * time.Millisecond
	granted := map[string]time.Time{}
	for i := range leases {
		key := fmt.Sprint(i)
		granted[key] = time.Now()
		lease, err := s.Grant(ctx, ttl)
		require.NoError(t, err)
		_, err = s.CompareAndSwapLease(ctx, lease, key, 0, []byte("v"))
		require.NoError(t, err)
	}
	for gone := 0; gone < leases; {
		ev := <-events
		if ev.Kind == store.Delete {
			require.GreaterOrEqual(t, time.Since(granted[ev.Entry.Key]), ttl, "a lease ended early")
			gone++
		}
	}
}

// TestUsers opens a store as a user: others may neither read nor write.
func TestUsers(t *testing.T) {
	name := root(t)
	config := zkstore.Config{Servers: []string{server(t)}, Root: name, User: "ads", Password: "secret:1"}
	s, err := zkstore.Open(t.Context(), config)
	require.NoError(t, err)
	_, err = s.CompareAndSwap(t.Context(), "k", 0, []byte("v"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s, err = zkstore.Open(t.Context(), config)
	require.NoError(t, err, "again, on a new session")
	_, err = s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	for _, password := range []string{"", "wrong"} {
		config.Password = password
		_, err = zkstore.Open(t.Context(), config)
		require.ErrorIs(t, err, zk.ErrNoAuth)
	}
	client := raw(t)
	require.NoError(t, client.AddAuth("digest", []byte("ads:secret:1")))
	require.NoError(t, remove(client, name))
}

// TestTLS opens a store through TLS, and one that does not trust its server.
func TestTLS(t *testing.T) {
	proxy, trusting := storetest.StartTLSProxy(t, server(t))
	config := zkstore.Config{Servers: []string{proxy.Address()}, Root: root(t), TLS: trusting}
	s, err := zkstore.Open(t.Context(), config)
	require.NoError(t, err)
	defer s.Close()
	rev, err := s.CompareAndSwap(t.Context(), "k", 0, []byte("v"))
	require.NoError(t, err)
	lease, err := s.Grant(t.Context(), time.Hour)
	require.NoError(t, err)
	require.NoError(t, s.KeepAlive(t.Context(), lease))
	e, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, rev, e.Revision)
	config.TLS, config.Timeout = &tls.Config{RootCAs: x509.NewCertPool()}, 300*time.Millisecond
	_, err = zkstore.Open(t.Context(), config)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorContains(t, err, "certificate signed by unknown authority")
}

// TestServersAway opens a store whose first two servers are away, one refusing
// and one silent, and then loses the one that it is connected to.
func TestServersAway(t *testing.T) {
	away := storetest.StartProxy(t, server(t))
	away.Stall()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	here := storetest.StartProxy(t, server(t))
	s, err := zkstore.Open(t.Context(), zkstore.Config{
		Servers: []string{gone.Addr().String(), away.Address(), here.Address()}, Root: root(t), Timeout: 30 * time.Second,
	})
	require.NoError(t, err)
	defer s.Close()
	rev, err := s.CompareAndSwap(t.Context(), "k", 0, []byte("v"))
	require.NoError(t, err)
	away.Restore()
	here.Cut()
	e, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, rev, e.Revision)
}

func TestMaxWatchers(t *testing.T) {
	s, err := zkstore.Open(t.Context(), zkstore.Config{Servers: []string{server(t)}, Root: root(t), MaxWatchers: 1})
	require.NoError(t, err)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	_, err = s.Watch(t.Context(), "")
	require.ErrorIs(t, err, store.ErrLimit)
	require.ErrorContains(t, err, "number of watchers is 2, must be 0 to 1")
	cancel()
	for range events { // ends
	}
	require.Eventually(t, func() bool { _, err := s.Watch(t.Context(), ""); return err == nil }, 10*time.Second, time.Millisecond)
}

// TestCloseLeavesNothing opens and closes stores that watch, and whose servers
// go away: no goroutine stays.
func TestCloseLeavesNothing(t *testing.T) {
	address, name := server(t), root(t)
	before := runtime.NumGoroutine()
	t.Run("", func(t *testing.T) {
		proxy := storetest.StartProxy(t, address)
		for i := range 6 {
			s := open(t, proxy.Address(), name)
			events, err := s.Watch(context.Background(), "")
			require.NoError(t, err)
			if i%2 == 1 {
				proxy.Stall()
			}
			require.NoError(t, s.Close())
			for range events { // ends
			}
			proxy.Restore()
		}
	})
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := zkstore.Open(t.Context(), zkstore.Config{
		Root: strings.Repeat("r", 257), Password: "p", Timeout: -1, SessionTimeout: 1, MaxRequestBytes: 5, MaxWatchers: -2,
	})
	for _, want := range []string{
		"Servers has 0 servers", "Root has 257 bytes, at most 256", "Password is set without User", "Timeout is -1ns",
		"SessionTimeout is 1ns", "MaxRequestBytes is 5, must be 0, or 131072 to 16777216", "MaxWatchers is -2",
	} {
		require.ErrorContains(t, err, want)
	}
	for _, root := range []string{"/", "a", "/a/", "/a//b", "/a/../b", "/zookeeper/a", "/zookeeper", "/a b", "/\u00e9"} {
		_, err := zkstore.Open(t.Context(), zkstore.Config{Servers: []string{"localhost:1"}, Root: root})
		require.ErrorContains(t, err, "must be an absolute path")
	}
}

// TestOpenNobodyThere opens a store where nothing listens, and one where
// something else answers, with lengths that would fill the memory or crash the
// client.
func TestOpenNobodyThere(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	for name, says := range map[string]string{
		"nobody": "", "text": "220 not what you look for\r\n", "short": "\x00\x00\x00\x04abcd", "huge": "\xff\xff\xff\xffabcd", "silent": "-",
	} {
		t.Run(name, func(t *testing.T) {
			address := free.Addr().String()
			if says != "" {
				address = speaker(t, strings.Trim(says, "-"))
			}
			begin := time.Now()
			_, err = zkstore.Open(t.Context(), zkstore.Config{Servers: []string{address}, Timeout: 300 * time.Millisecond})
			require.ErrorIs(t, err, store.ErrUnavailable)
			require.ErrorContains(t, err, address)
			require.Less(t, time.Since(begin), 5*time.Second)
		})
	}
}

// speaker is the address of a server that says the same to everyone.
func speaker(t *testing.T, says string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				_, _ = io.WriteString(c, says)
				_, _ = io.Copy(io.Discard, c) // until the client hangs up
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}
