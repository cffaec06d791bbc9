package etcdstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// Defaults of Config.
const (
	DefaultRoot    = "elasticps/"
	DefaultTimeout = 10 * time.Second
)

// MaxRootBytes is the longest root.
const MaxRootBytes = 256

// Bounds on how a lost connection is found and made anew. gRPC raises shorter
// intervals to this one.
const (
	probeInterval = 10 * time.Second
	probeTimeout  = 3 * time.Second
	firstBackoff  = 50 * time.Millisecond
	lastBackoff   = 2 * time.Second
)

// Config is the configuration of a Store. Endpoints must be set; the zero value
// of everything else is the default.
type Config struct {
	// Endpoints are the servers, each as host:port or as a URL.
	Endpoints []string
	// Root is what the etcd keys of this store begin with; a slash is added at
	// its end if there is none. Empty means DefaultRoot.
	Root string
	// TLS, if set, secures the connections; without it they are in the clear.
	TLS *tls.Config
	// Username and Password are the etcd user; empty means none.
	Username, Password string
	// Timeout bounds each call, and the start of a watch, also when its
	// context allows more; 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxWatchers bounds the watches; 0 means store.DefaultMaxWatchers.
	MaxWatchers int
}

func (c *Config) validate() error {
	var errs []error
	if len(c.Endpoints) == 0 {
		errs = append(errs, errors.New("etcdstore: config: Endpoints has 0 servers, must have 1 or more"))
	}
	for i, e := range c.Endpoints {
		if e == "" {
			errs = append(errs, fmt.Errorf("etcdstore: config: Endpoints[%d] is empty", i))
		}
	}
	if len(c.Root) > MaxRootBytes {
		errs = append(errs, fmt.Errorf("etcdstore: config: Root has %d bytes, at most %d", len(c.Root), MaxRootBytes))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("etcdstore: config: Timeout is %v, must be 0 or more", c.Timeout))
	}
	if c.MaxWatchers < 0 {
		errs = append(errs, fmt.Errorf("etcdstore: config: MaxWatchers is %d, must be 0 or more", c.MaxWatchers))
	}
	return errors.Join(errs...)
}

// Store is a store.Store on etcd. Make one with Open.
type Store struct {
	config  Config
	client  *clientv3.Client
	leases  pb.LeaseClient
	closing chan struct{}
	running sync.WaitGroup // watches

	mu       sync.Mutex
	closed   bool
	watchers int
}

var _ store.Store = (*Store)(nil)

// Open connects to the servers and asks them for a key, so that a wrong address
// or a missing permission shows at once. It blocks until they answer, until ctx
// ends, or for Timeout.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.Root = cmp.Or(c.Root, DefaultRoot)
	if !strings.HasSuffix(c.Root, "/") {
		c.Root += "/"
	}
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxWatchers = cmp.Or(c.MaxWatchers, store.DefaultMaxWatchers)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, TLS: c.TLS, Username: c.Username, Password: c.Password,
		DialTimeout:       c.Timeout,
		DialKeepAliveTime: probeInterval, DialKeepAliveTimeout: probeTimeout,
		Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: lastBackoff},
			MinConnectTimeout: probeTimeout,
		}), grpc.WithChainUnaryInterceptor(noteCause)},
	})
	s := &Store{config: c, client: client, closing: make(chan struct{})}
	if err != nil {
		return nil, fmt.Errorf("etcdstore: open %q: %w", c.Endpoints, s.classify(ctx, err))
	}
	s.leases = pb.NewLeaseClient(client.ActiveConnection())
	err = s.read(ctx, fmt.Sprintf("open %q", c.Endpoints), func(ctx context.Context) error {
		_, err := client.Get(ctx, c.Root)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close implements store.Store: it ends the watches and lets go of the
// connections. Leases go on until they run out.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	if first {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	var err error
	if first {
		err = s.client.Close()
	}
	s.running.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcdstore: close: %w", err)
	}
	return nil
}
