package etcdstore_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/etcdstore"
	"github.com/elasticps/elasticps/shard/store/storetest"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// server is the address of an etcd server, from ELASTICPS_ETCD.
func server(t *testing.T) string {
	t.Helper()
	address := os.Getenv("ELASTICPS_ETCD")
	if address == "" {
		t.Skip("ELASTICPS_ETCD is not set: the host:port of an etcd server")
	}
	return address
}

// root is a root that no other test has, emptied at the end.
func root(t *testing.T) string {
	name := "elasticps-test/" + rand.Text() + "/"
	client := raw(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := client.Delete(ctx, name, clientv3.WithPrefix())
		require.NoError(t, errors.Join(err, client.Close()))
	})
	return name
}

// raw is a client without a store, connected and at rest.
func raw(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server(t)}, Logger: zap.NewNop()})
	require.NoError(t, err)
	_, err = client.Get(t.Context(), "/")
	require.NoError(t, err)
	return client
}

func open(t *testing.T, address, root string) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{address}, Root: root})
	require.NoError(t, err)
	return s
}

func TestEtcd(t *testing.T) {
	address := server(t)
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, address, root(t)) })
}

func TestEtcdOutages(t *testing.T) {
	storetest.RunOutages(t, server(t), func(t *testing.T) func(string) store.Store {
		name := root(t)
		return func(address string) store.Store { return open(t, address, name) }
	})
}

// TestWatchAfterCompaction cuts a watch off, changes keys and lets etcd forget
// the changes.
func TestWatchAfterCompaction(t *testing.T) {
	proxy, name := storetest.StartProxy(t, server(t)), root(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	direct, s := open(t, server(t), name), open(t, proxy.Address(), name)
	defer direct.Close()
	defer s.Close()
	put := func(key, value string, old store.Revision) store.Revision {
		var bytes []byte
		if value != "" {
			bytes = []byte(value)
		}
		rev, err := direct.CompareAndSwap(ctx, key, old, bytes)
		require.NoError(t, err)
		return rev
	}
	put("same", "1", 0)
	changed, gone := put("changed", "1", 0), put("gone", "1", 0)
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	for range 4 {
		<-events
	}
	proxy.Cut()
	changed = put("changed", "2", changed)
	deleted := put("gone", "", gone)
	fresh := put("fresh", "1", 0)
	client := raw(t)
	defer client.Close()
	resp, err := client.Get(ctx, name)
	require.NoError(t, err)
	_, err = client.Compact(ctx, resp.Header.Revision)
	require.NoError(t, err)
	proxy.Restore()
	want := []store.Event{
		{Kind: store.Put, Entry: store.Entry{Key: "changed", Value: []byte("2"), Revision: changed}},
		{Kind: store.Put, Entry: store.Entry{Key: "fresh", Value: []byte("1"), Revision: fresh}},
	}
	for _, ev := range want {
		require.Equal(t, ev, <-events)
	}
	ev := <-events
	require.Equal(t, store.Delete, ev.Kind)
	require.Equal(t, "gone", ev.Entry.Key)
	require.GreaterOrEqual(t, ev.Entry.Revision, deleted)
	last := put("gone", "again", 0)
	require.Equal(t, store.Event{Kind: store.Put, Entry: store.Entry{Key: "gone", Value: []byte("again"), Revision: last}}, <-events)
}

// TestForeignKeys puts etcd keys under the root that no store has written: who
// meets them is told which, watches and the other keys are not affected.
func TestForeignKeys(t *testing.T) {
	name := root(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s := open(t, server(t), name)
	defer s.Close()
	client := raw(t)
	defer client.Close()
	long := name + strings.Repeat("x", store.MaxKeyBytes+1)
	for _, key := range []string{name, long} {
		_, err := client.Put(ctx, key, "v")
		require.NoError(t, err)
	}
	rev, err := s.CompareAndSwap(ctx, "a", 0, []byte("v"))
	require.NoError(t, err)
	_, err = s.List(ctx, "")
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.ErrorContains(t, err, long[:100])
	require.ErrorContains(t, err, "key length in bytes is 513, must be 1 to 512")
	list, err := s.List(ctx, "a")
	require.NoError(t, err)
	require.Len(t, list, 1)
	events, err := s.Watch(ctx, "")
	require.NoError(t, err)
	require.Equal(t, rev, (<-events).Entry.Revision)
	require.Equal(t, store.Synced, (<-events).Kind)
	_, err = client.Put(ctx, long, "again")
	require.NoError(t, err)
	next, err := s.CompareAndSwap(ctx, "a", rev, []byte("w"))
	require.NoError(t, err)
	require.Equal(t, next, (<-events).Entry.Revision)
	resp, err := client.Get(ctx, long)
	require.NoError(t, err)
	require.Equal(t, "again", string(resp.Kvs[0].Value), "the foreign key is left as it is")
}

// TestRootsAreApart opens two stores whose roots begin alike.
func TestRootsAreApart(t *testing.T) {
	name := root(t)
	one, two := open(t, server(t), name+"a"), open(t, server(t), name+"ab")
	defer one.Close()
	defer two.Close()
	_, err := two.CompareAndSwap(t.Context(), "k", 0, []byte("v"))
	require.NoError(t, err)
	list, err := one.List(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, list)
}

// TestTLS opens a store through TLS, and one that does not trust its server.
func TestTLS(t *testing.T) {
	proxy, trusting := storetest.StartTLSProxy(t, server(t))
	config := etcdstore.Config{Endpoints: []string{proxy.Address()}, Root: root(t), TLS: trusting}
	s, err := etcdstore.Open(t.Context(), config)
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
	_, err = etcdstore.Open(t.Context(), config)
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
	s, err := etcdstore.Open(t.Context(), etcdstore.Config{
		Endpoints: []string{gone.Addr().String(), away.Address(), here.Address()}, Root: root(t), Timeout: 30 * time.Second,
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
	s, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server(t)}, Root: root(t), MaxWatchers: 1})
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

// TestCloseLeavesNothing opens and closes stores that watch: no goroutine stays.
func TestCloseLeavesNothing(t *testing.T) {
	address, name := server(t), root(t)
	before := runtime.NumGoroutine()
	for range 5 {
		s := open(t, address, name)
		events, err := s.Watch(context.Background(), "")
		require.NoError(t, err)
		require.NoError(t, s.Close())
		for range events { // ends
		}
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := etcdstore.Open(t.Context(), etcdstore.Config{Root: strings.Repeat("r", 257), Timeout: -1, MaxWatchers: -2})
	for _, want := range []string{"Endpoints has 0 servers", "Root has 257 bytes, at most 256", "Timeout is -1ns", "MaxWatchers is -2"} {
		require.ErrorContains(t, err, want)
	}
	_, err = etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{"localhost:1", ""}})
	require.ErrorContains(t, err, "Endpoints[1] is empty")
}

// TestOpenNobodyThere opens a store where nothing listens, and one where
// something else answers.
func TestOpenNobodyThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 not what you look for\r\n"))
			c.Close()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	for _, address := range []string{free.Addr().String(), listener.Addr().String()} {
		begin := time.Now()
		_, err = etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{address}, Timeout: 300 * time.Millisecond})
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.ErrorContains(t, err, address)
		require.Less(t, time.Since(begin), 5*time.Second)
	}
	listener.Close()
	<-served
}
