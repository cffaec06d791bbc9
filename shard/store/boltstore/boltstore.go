package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// DefaultLockTimeout is how long Open waits for another process to let go of
// the file.
const DefaultLockTimeout = time.Second

// Config is the configuration of a Store. Path must be set; the zero value of
// everything else is the default.
type Config struct {
	// Path is the file; it is created if it does not exist.
	Path string
	// LockTimeout is how long Open waits for the file to be unlocked; 0 means
	// DefaultLockTimeout.
	LockTimeout time.Duration
	// Clock and the limits are those of store.Config.
	Clock                           store.Clock
	MaxKeys, MaxLeases, MaxWatchers int
	MaxBytes                        int64
}

func (c *Config) validate() error {
	var errs []error
	if c.Path == "" {
		errs = append(errs, errors.New("boltstore: config: Path is empty"))
	}
	if c.LockTimeout < 0 {
		errs = append(errs, fmt.Errorf("boltstore: config: LockTimeout is %v, must be 0 or more", c.LockTimeout))
	}
	return errors.Join(errs...)
}

// Store is a store.Store in a file. Make one with Open.
type Store struct {
	*store.Memory
	file *file
}

var _ store.Store = (*Store)(nil)

// Open opens or creates the store in a file. It blocks until the file is
// unlocked, at most LockTimeout. Errors name the file and wrap store.ErrLocked
// or store.ErrCorrupt where they apply; a damaged file is left as it is.
func Open(c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = DefaultLockTimeout
	}
	f, state, err := openFile(c)
	if err != nil {
		return nil, err
	}
	m, err := store.NewMemory(store.Config{
		Clock: c.Clock, Journal: f, State: state,
		MaxKeys: c.MaxKeys, MaxBytes: c.MaxBytes, MaxLeases: c.MaxLeases, MaxWatchers: c.MaxWatchers,
	})
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return &Store{Memory: m, file: f}, nil
}

// Close implements store.Store: it waits for the change under way and lets go
// of the file.
func (s *Store) Close() error {
	return errors.Join(s.Memory.Close(), s.file.close())
}

// file is the journal.
type file struct {
	db   *bolt.DB
	path string
}

func openFile(c Config) (*file, store.State, error) {
	if info, err := os.Stat(c.Path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		if err := checkFile(c.Path, info.Size()); err != nil {
			return nil, store.State{}, err
		}
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, store.State{}, fmt.Errorf("boltstore: %w", err)
	}
	f := &file{path: c.Path}
	var state store.State
	err := guarded(c.Path, func() error {
		db, err := bolt.Open(c.Path, 0o600, &bolt.Options{Timeout: c.LockTimeout, FreelistType: bolt.FreelistMapType})
		if err != nil {
			return openError(c, err)
		}
		f.db = db
		state, err = f.load()
		return err
	})
	if err != nil {
		if f.db != nil {
			err = errors.Join(err, guarded(c.Path, f.close))
		}
		return nil, store.State{}, err
	}
	return f, state, nil
}

func openError(c Config, err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("boltstore: %s: %w (waited %v)", c.Path, store.ErrLocked, c.LockTimeout)
	}
	for _, damaged := range []error{bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum} {
		if errors.Is(err, damaged) {
			return corrupt(c.Path, "%v", err)
		}
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("boltstore: %w", err)
	}
	return corrupt(c.Path, "%v", err)
}

func corrupt(path, format string, args ...any) error {
	return fmt.Errorf("boltstore: %s: %w: %s", path, store.ErrCorrupt, fmt.Sprintf(format, args...))
}

// guarded runs f and turns a panic, or a fault of the mapped memory of a file
// that was cut short, into an error: bbolt trusts its file.
func guarded(path string, f func() error) (err error) {
	former := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(former)
	defer func() {
		if p := recover(); p != nil {
			err = corrupt(path, "%v", p)
		}
	}()
	return f()
}

func (f *file) close() error {
	if err := f.db.Close(); err != nil {
		return fmt.Errorf("boltstore: %s: %w", f.path, err)
	}
	return nil
}
