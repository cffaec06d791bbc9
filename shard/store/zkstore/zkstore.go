package zkstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/go-zookeeper/zk"
)

// Defaults of Config.
const (
	DefaultRoot           = "/elasticps"
	DefaultTimeout        = 10 * time.Second
	DefaultSessionTimeout = 10 * time.Second
	// DefaultMaxRequestBytes is what ZooKeeper takes without jute.maxbuffer.
	DefaultMaxRequestBytes = 1<<20 - 1
)

// Limits.
const (
	// MaxRootBytes is the longest root.
	MaxRootBytes = 256
	// MinRequestBytes and MaxRequestBytes bound Config.MaxRequestBytes.
	MinRequestBytes = 128 << 10
	MaxRequestBytes = 16 << 20
	// MaxResponseBytes is the largest response that is read: the names of all
	// keys together.
	MaxResponseBytes = 64 << 20
	// MaxCalls bounds the requests that wait for their answers.
	MaxCalls = 256
)

// Of a request, overheadBytes are kept for all that is not the value, and
// leaseKeyBytes for the end of one key of a lease: two deletions with the
// longest of paths.
const (
	overheadBytes = 32 << 10
	leaseKeyBytes = 4 << 10
)

// Bounds on the pauses between tries.
const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
)

// Config is the configuration of a Store. Servers must be set; the zero value of
// everything else is the default.
type Config struct {
	// Servers are the servers, each as host:port. A store is connected to one
	// at a time.
	Servers []string
	// Root is the node under which this store keeps its own; it is made, with
	// those above it, if it does not exist. Empty means DefaultRoot.
	Root string
	// TLS, if set, secures the connections; without it they are in the clear.
	TLS *tls.Config
	// User and Password, if set, are sent with the scheme "digest", and the
	// nodes of the store are made for this user alone. Otherwise they are
	// everyone's.
	User, Password string
	// Timeout bounds each call, and the start of a watch, also when its
	// context allows more; 0 means DefaultTimeout.
	Timeout time.Duration
	// SessionTimeout is the time after which the servers take a silent store
	// for dead, within their own bounds; 0 means DefaultSessionTimeout. A
	// silent server is given up after two thirds of it.
	SessionTimeout time.Duration
	// MaxRequestBytes is what the servers take in one request, their
	// jute.maxbuffer; 0 means DefaultMaxRequestBytes. If they take less than
	// it says, they close the connection on a value that is too long.
	MaxRequestBytes int
	// MaxWatchers bounds the watches; 0 means store.DefaultMaxWatchers.
	MaxWatchers int
}

func (c *Config) validate() error {
	var errs []error
	fault := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("zkstore: config: "+format, args...))
		}
	}
	fault(len(c.Servers) == 0, "Servers has 0 servers, must have 1 or more")
	for i, s := range c.Servers {
		fault(s == "", "Servers[%d] is empty", i)
	}
	fault(len(c.Root) > MaxRootBytes, "Root has %d bytes, at most %d", len(c.Root), MaxRootBytes)
	fault(c.Root != "" && !validRoot(c.Root), "Root is %.64q, must be an absolute path of printable ASCII, in its shortest form, not / and not below /zookeeper", c.Root)
	fault(c.User == "" && c.Password != "", "Password is set without User")
	fault(strings.Contains(c.User, ":"), "User is %.64q, must have no colon", c.User)
	fault(c.Timeout < 0, "Timeout is %v, must be 0 or more", c.Timeout)
	fault(c.SessionTimeout < 0 || c.SessionTimeout > 0 && c.SessionTimeout < time.Second, "SessionTimeout is %v, must be 0, or 1s or more", c.SessionTimeout)
	fault(c.MaxRequestBytes != 0 && (c.MaxRequestBytes < MinRequestBytes || c.MaxRequestBytes > MaxRequestBytes),
		"MaxRequestBytes is %d, must be 0, or %d to %d", c.MaxRequestBytes, MinRequestBytes, MaxRequestBytes)
	fault(c.MaxWatchers < 0, "MaxWatchers is %d, must be 0 or more", c.MaxWatchers)
	return errors.Join(errs...)
}

func validRoot(root string) bool {
	for _, r := range root {
		if r <= ' ' || r > '~' {
			return false
		}
	}
	return root[0] == '/' && root != "/" && path.Clean(root) == root && !strings.HasPrefix(root+"/", "/zookeeper/")
}

func (c *Config) setDefaults() {
	c.Root = cmp.Or(c.Root, DefaultRoot)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, DefaultSessionTimeout)
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, DefaultMaxRequestBytes)
	c.MaxWatchers = cmp.Or(c.MaxWatchers, store.DefaultMaxWatchers)
}

// Store is a store.Store on ZooKeeper. Make one with Open.
type Store struct {
	config  Config
	acl     []zk.ACL
	life    context.Context // ends when the store closes
	end     context.CancelFunc
	calls   chan struct{}  // holds a token per request that waits
	running sync.WaitGroup // everything that the store has started

	mu       sync.Mutex
	closed   bool
	watchers int
	present  *session      // nil while there is none
	arrived  chan struct{} // closed when there is one
	cause    error         // why there is none
}

var _ store.Store = (*Store)(nil)

// Open connects to the servers and makes the nodes of the store if they are not
// there. It blocks until that is done, until ctx ends, or for Timeout. A root
// that holds something else gives an error that wraps store.ErrCorrupt, and is
// left as it is.
func Open(ctx context.Context, c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	s := &Store{
		config: c, acl: zk.WorldACL(zk.PermAll),
		calls: make(chan struct{}, MaxCalls), arrived: make(chan struct{}),
	}
	if c.User != "" {
		s.acl = zk.DigestACL(zk.PermAll, c.User, c.Password)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.running.Go(s.connect)
	if err := s.attempt(ctx, fmt.Sprintf("open %s of %q", c.Root, c.Servers), s.prepare); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.running.Go(s.sweep)
	return s, nil
}

// prepare makes the nodes that are missing and looks at the journal.
func (s *Store) prepare(ctx context.Context) error {
	for i, r := range s.config.Root + "/" {
		if r == '/' && i > 0 {
			if err := s.make(ctx, s.config.Root[:i], nil); err != nil {
				return err
			}
		}
	}
	for name, data := range map[string][]byte{keysNode: nil, leasesNode: nil, journalNode: (&journal{}).encode()} {
		if err := s.make(ctx, s.path(name), data); err != nil {
			return err
		}
	}
	_, _, err := s.journal(ctx)
	return err
}

// make creates a node unless it is there.
func (s *Store) make(ctx context.Context, path string, data []byte) error {
	_, err := s.call(ctx, func(c *zk.Conn) (node, error) {
		_, err := c.Create(path, data, 0, s.acl)
		return node{}, err
	})
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// path is the path of a node of the store.
func (s *Store) path(name string) string { return s.config.Root + "/" + name }

// run starts f, which ends soon after the store's life does. It reports false
// if the store is closed.
func (s *Store) run(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.running.Go(f)
	}
	return !s.closed
}

// Close implements store.Store: it ends the watches and the session. Leases go
// on until they run out, watched over by other stores on the same root. It
// blocks for a second or two when the server is silent.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.running.Wait()
	return nil
}
