package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Defaults of Config.
const (
	DefaultMaxKeys     = 1 << 20
	DefaultMaxBytes    = 256 << 20
	DefaultMaxLeases   = 1 << 16
	DefaultMaxWatchers = 1 << 12
)

// Clock is the time that a store goes by.
type Clock interface {
	// Now is the present time.
	Now() time.Time
	// AfterFunc calls f once, on a goroutine of its own, when d has passed,
	// unless stop is called before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Config is the configuration of a Memory store. The zero value is an empty
// store with real time and the default limits.
type Config struct {
	// Clock is the time that leases go by; nil is the system's.
	Clock Clock
	// Journal, if set, keeps each change before it takes place.
	Journal Journal
	// State is what the store holds at first, as a Journal has kept it.
	State State
	// MaxKeys, MaxBytes (keys and values together), MaxLeases and MaxWatchers
	// bound the store; 0 means the default.
	MaxKeys, MaxLeases, MaxWatchers int
	MaxBytes                        int64
}

// Journal makes a Memory store durable. Append must keep the whole change or
// nothing of it; it may block. Calls do not overlap. After an error the change
// does not take place in this process, and the caller gets ErrUnknown, because
// a failing disk may still show the change after a restart.
type Journal interface {
	Append(c Change) error
}

// Change is one step of a store's history: everything in it happens at once,
// at its revision.
type Change struct {
	Revision Revision
	Ops      []Op
	// Grant, if not 0, is a lease that begins, of duration TTL. End, if not 0, is a lease that ends.
	Grant, End LeaseID
	TTL        time.Duration
}

// Op sets a key or, with a nil Value, deletes it. Lease is what the key is
// attached to, 0 for none.
type Op struct {
	Key   string
	Value []byte
	Lease LeaseID
}

// State is the content of a store.
type State struct {
	Revision Revision
	// LastLease is the highest lease ever granted.
	LastLease LeaseID
	Entries   []StateEntry
	// Leases start anew, with their full duration, when a store is opened.
	Leases map[LeaseID]time.Duration
}

// StateEntry is an entry and the lease that it is attached to, 0 for none.
type StateEntry struct {
	Entry
	Lease LeaseID
}

func (c *Config) validate() error {
	var errs []error
	check := func(name string, value int64) {
		if value < 0 {
			errs = append(errs, fmt.Errorf("store: config: %s is %d, must be 0 or more", name, value))
		}
	}
	check("MaxKeys", int64(c.MaxKeys))
	check("MaxBytes", c.MaxBytes)
	check("MaxLeases", int64(c.MaxLeases))
	check("MaxWatchers", int64(c.MaxWatchers))
	return errors.Join(errs...)
}

func (c *Config) setDefaults() {
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	c.MaxKeys = cmp.Or(c.MaxKeys, DefaultMaxKeys)
	c.MaxBytes = cmp.Or(c.MaxBytes, DefaultMaxBytes)
	c.MaxLeases = cmp.Or(c.MaxLeases, DefaultMaxLeases)
	c.MaxWatchers = cmp.Or(c.MaxWatchers, DefaultMaxWatchers)
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

// Memory is a Store in this process's memory, and the core of stores that keep
// a journal. Make one with NewMemory.
type Memory struct {
	config  Config
	closing chan struct{}
	write   chan struct{}  // holds one token: the right to change
	running sync.WaitGroup // watchers and changes

	mu       sync.RWMutex
	closed   bool
	revision Revision
	bytes    int64
	entries  map[string]StateEntry
	leases   map[LeaseID]*lease
	last     LeaseID
	watchers map[*watcher]struct{}
}

type lease struct {
	ttl      time.Duration
	deadline time.Time
	keys     map[string]struct{}
	stop     func() bool
}

var _ Store = (*Memory)(nil)

// NewMemory makes a store. It reports every fault of the configuration at
// once. It does not block.
func NewMemory(c Config) (*Memory, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	m := &Memory{
		config: c, closing: make(chan struct{}), write: make(chan struct{}, 1),
		revision: c.State.Revision, last: c.State.LastLease,
		entries: make(map[string]StateEntry), leases: make(map[LeaseID]*lease), watchers: make(map[*watcher]struct{}),
	}
	m.write <- struct{}{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, ttl := range c.State.Leases {
		m.startLease(id, ttl)
	}
	for _, e := range c.State.Entries {
		m.set(e.Revision, Op{e.Key, append([]byte{}, e.Value...), e.Lease})
	}
	m.config.State = State{}
	return m, nil
}

// Get implements KV.
func (m *Memory) Get(ctx context.Context, key string) (Entry, error) {
	if err := CheckKey(key); err != nil {
		return Entry{}, err
	}
	if err := m.ready(ctx); err != nil {
		return Entry{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	e, ok := m.entries[key]
	if !ok {
		return Entry{}, fmt.Errorf("%w: %.64q", ErrNotFound, key)
	}
	return e.clone(), nil
}

// List implements KV.
func (m *Memory) List(ctx context.Context, prefix string) ([]Entry, error) {
	if err := m.ready(ctx); err != nil {
		return nil, err
	}
	m.mu.RLock()
	list := m.under(prefix)
	m.mu.RUnlock()
	slices.SortFunc(list, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}

func (m *Memory) under(prefix string) []Entry {
	var list []Entry
	for key, e := range m.entries {
		if strings.HasPrefix(key, prefix) {
			list = append(list, e.clone())
		}
	}
	return list
}

func (e StateEntry) clone() Entry {
	return Entry{Key: e.Key, Value: append([]byte{}, e.Value...), Revision: e.Revision}
}

// CompareAndSwap implements KV.
func (m *Memory) CompareAndSwap(ctx context.Context, key string, old Revision, value []byte) (Revision, error) {
	return m.swap(ctx, 0, key, old, value)
}

// CompareAndSwapLease implements Attacher.
func (m *Memory) CompareAndSwapLease(ctx context.Context, id LeaseID, key string, old Revision, value []byte) (Revision, error) {
	if id == 0 {
		return 0, fmt.Errorf("%w: 0", ErrLeaseNotFound)
	}
	return m.swap(ctx, id, key, old, value)
}

func (m *Memory) swap(ctx context.Context, id LeaseID, key string, old Revision, value []byte) (Revision, error) {
	if err := errors.Join(CheckKey(key), CheckValue(value)); err != nil {
		return 0, err
	}
	op := Op{Key: key, Lease: id}
	if value != nil {
		op.Value = append([]byte{}, value...)
	}
	c, err := m.change(ctx, func(c *Change) error {
		held, exists := m.entries[key]
		if op.Value == nil && old == 0 && !exists {
			return fmt.Errorf("%w: %.64q", ErrNotFound, key)
		}
		if held.Revision != old {
			return &ConflictError{Key: key, Old: old, Current: held.Revision}
		}
		if id != 0 && m.leases[id] == nil {
			return fmt.Errorf("%w: %d", ErrLeaseNotFound, id)
		}
		if id == 0 {
			op.Lease = held.Lease
		}
		c.Ops = []Op{op}
		return m.checkRoom(op, held, exists)
	})
	return c.Revision, err
}

func (m *Memory) checkRoom(op Op, held StateEntry, exists bool) error {
	if op.Value == nil {
		return nil
	}
	if !exists && len(m.entries) >= m.config.MaxKeys {
		return &LimitError{"number of keys", int64(len(m.entries)) + 1, 0, int64(m.config.MaxKeys)}
	}
	bytes := m.bytes + int64(len(op.Key)+len(op.Value))
	if exists {
		bytes -= int64(len(op.Key) + len(held.Value))
	}
	if bytes > m.config.MaxBytes {
		return &LimitError{"size of the store in bytes", bytes, 0, m.config.MaxBytes}
	}
	return nil
}

// ready reports why the store takes no call.
func (m *Memory) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	select {
	case <-m.closing:
		return ErrClosed
	default:
		return nil
	}
}

// change makes one change: plan fills it in from the present state, the journal
// keeps it, and then readers and watchers see it. The state is not locked while
// the journal is at work, so reads go on; writers wait their turn, no longer
// than their contexts. A caller whose context ends meanwhile gets ErrUnknown.
func (m *Memory) change(ctx context.Context, plan func(*Change) error) (Change, error) {
	if err := m.ready(ctx); err != nil {
		return Change{}, err
	}
	select {
	case <-m.write:
	case <-ctx.Done():
		return Change{}, fmt.Errorf("store: waiting for another writer: %w", ctx.Err())
	case <-m.closing:
		return Change{}, ErrClosed
	}
	m.mu.RLock()
	c := Change{Revision: m.revision + 1}
	err := plan(&c)
	if m.closed {
		err = ErrClosed
	}
	if err == nil {
		m.running.Add(1) // under the lock, so that Close sees it
	}
	m.mu.RUnlock()
	if err != nil {
		m.write <- struct{}{}
		return Change{}, err
	}
	if m.config.Journal == nil {
		defer m.running.Done()
		m.apply(c)
		m.write <- struct{}{}
		return c, nil
	}
	return m.journal(ctx, c)
}

func (m *Memory) journal(ctx context.Context, c Change) (Change, error) {
	kept := make(chan error, 1)
	go func() {
		defer m.running.Done()
		err := m.config.Journal.Append(c)
		if err == nil {
			m.apply(c)
		}
		m.write <- struct{}{}
		kept <- err
	}()
	select {
	case err := <-kept:
		if err != nil {
			return Change{}, fmt.Errorf("%w: journal: %w", ErrUnknown, err)
		}
		return c, nil
	case <-ctx.Done():
		return Change{}, fmt.Errorf("%w: the journal is still at work: %w", ErrUnknown, ctx.Err())
	}
}

// apply makes a change visible.
func (m *Memory) apply(c Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revision = c.Revision
	if c.Grant != 0 {
		m.startLease(c.Grant, c.TTL)
	}
	for _, op := range c.Ops {
		m.set(c.Revision, op)
		ev := Event{Kind: Put, Entry: Entry{Key: op.Key, Value: op.Value, Revision: c.Revision}}
		if op.Value == nil {
			ev.Kind = Delete
		}
		for w := range m.watchers {
			if strings.HasPrefix(op.Key, w.prefix) {
				w.Add(ev)
			}
		}
	}
	if l := m.leases[c.End]; l != nil {
		l.stop()
		delete(m.leases, c.End)
	}
}

func (m *Memory) set(rev Revision, op Op) {
	held, exists := m.entries[op.Key]
	if exists {
		m.bytes -= int64(len(op.Key) + len(held.Value))
		if l := m.leases[held.Lease]; l != nil {
			delete(l.keys, op.Key)
		}
	}
	if op.Value == nil {
		delete(m.entries, op.Key)
		return
	}
	m.bytes += int64(len(op.Key) + len(op.Value))
	m.entries[op.Key] = StateEntry{Entry{op.Key, op.Value, rev}, op.Lease}
	if l := m.leases[op.Lease]; l != nil {
		l.keys[op.Key] = struct{}{}
	}
}

// Close implements Store. It waits for a change that the journal is keeping.
func (m *Memory) Close() error {
	m.mu.Lock()
	if !m.closed {
		m.closed = true
		close(m.closing)
		for _, l := range m.leases {
			l.stop()
		}
	}
	m.mu.Unlock()
	m.running.Wait()
	return nil
}
