package boltstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/elasticps/elasticps/shard/store/boltstore"
	"github.com/elasticps/elasticps/shard/store/storetest"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
)

func TestBolt(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, filepath.Join(t.TempDir(), "s")) })
}

func open(t *testing.T, path string) *boltstore.Store {
	t.Helper()
	s, err := boltstore.Open(boltstore.Config{Path: path})
	require.NoError(t, err)
	return s
}

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ctx := t.Context()
	s := open(t, path)
	rev, err := s.CompareAndSwap(ctx, "a", 0, []byte("1"))
	require.NoError(t, err)
	b, err := s.CompareAndSwap(ctx, "b", 0, []byte{})
	require.NoError(t, err)
	last, err := s.CompareAndSwap(ctx, "c", 0, []byte("x"))
	require.NoError(t, err)
	last, err = s.CompareAndSwap(ctx, "c", last, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	s = open(t, path)
	defer s.Close()
	list, err := s.List(ctx, "")
	require.NoError(t, err)
	require.Equal(t, []store.Entry{{Key: "a", Value: []byte("1"), Revision: rev}, {Key: "b", Value: []byte{}, Revision: b}}, list)
	again, err := s.CompareAndSwap(ctx, "c", 0, []byte("y"))
	require.NoError(t, err)
	require.Greater(t, again, last, "revisions go on, also after a deletion")
}

// TestReopenLeases opens a store whose leases are in force: they start anew,
// still hold their keys, and no name is given twice.
func TestReopenLeases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s := open(t, path)
		id, err := s.Grant(ctx, 3*time.Second)
		require.NoError(t, err)
		_, err = s.CompareAndSwapLease(ctx, id, "a", 0, []byte("v"))
		require.NoError(t, err)
		ended, err := s.Grant(ctx, time.Hour)
		require.NoError(t, err)
		require.NoError(t, s.Revoke(ctx, ended))
		require.NoError(t, s.Close())
		time.Sleep(time.Hour) // virtual

		s = open(t, path)
		defer s.Close()
		_, err = s.Get(ctx, "a")
		require.NoError(t, err)
		require.NoError(t, s.KeepAlive(ctx, id))
		require.ErrorIs(t, s.KeepAlive(ctx, ended), store.ErrLeaseNotFound)
		fresh, err := s.Grant(ctx, time.Hour)
		require.NoError(t, err)
		require.Greater(t, fresh, ended)
		time.Sleep(4 * time.Second) // virtual
		synctest.Wait()
		_, err = s.Get(ctx, "a")
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := open(t, path)
	defer s.Close()
	_, err := boltstore.Open(boltstore.Config{Path: path, LockTimeout: 50 * time.Millisecond})
	require.ErrorIs(t, err, store.ErrLocked)
	require.ErrorContains(t, err, path)
	_, err = s.CompareAndSwap(t.Context(), "a", 0, []byte("v"))
	require.NoError(t, err, "the holder goes on")
}

func TestConfigFaults(t *testing.T) {
	_, err := boltstore.Open(boltstore.Config{LockTimeout: -1})
	require.ErrorContains(t, err, "Path is empty")
	require.ErrorContains(t, err, "LockTimeout is -1ns")
	path := filepath.Join(t.TempDir(), "s")
	_, err = boltstore.Open(boltstore.Config{Path: path, MaxKeys: -1})
	require.ErrorContains(t, err, "MaxKeys is -1")
	open(t, path).Close()
	_, err = boltstore.Open(boltstore.Config{Path: filepath.Join(path, "below")})
	require.Error(t, err)
	_, err = boltstore.Open(boltstore.Config{Path: t.TempDir()})
	require.Error(t, err)
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	db, err := bolt.Open(other, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("mine"))
		return err
	}))
	require.NoError(t, db.Close())
	paths := []string{other}
	for name, content := range map[string]string{"text": "hello", "zeros": string(make([]byte, 65536))} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		paths = append(paths, path)
	}
	for _, path := range paths {
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		_, err = boltstore.Open(boltstore.Config{Path: path})
		require.ErrorIs(t, err, store.ErrCorrupt, path)
		require.ErrorContains(t, err, path)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after, "the file is left as it is")
	}
}

// TestDamagedFiles cuts a file at many lengths and flips bits all over it: Open
// gives a typed error or a store whose values are those that were written; it
// never crashes and never hands out a changed value.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	s := open(t, path)
	written := map[string]string{}
	for i := range 40 {
		key, value := fmt.Sprintf("key/%03d", i), fmt.Sprintf("value-%d-%0*d", i, i*20, 0)
		_, err := s.CompareAndSwap(t.Context(), key, 0, []byte(value))
		require.NoError(t, err)
		written[key] = value
	}
	require.NoError(t, s.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)

	judge := func(name string, content []byte) bool {
		damaged := filepath.Join(dir, "damaged")
		require.NoError(t, os.WriteFile(damaged, content, 0o600))
		s, err := boltstore.Open(boltstore.Config{Path: damaged})
		if err != nil {
			require.ErrorIs(t, err, store.ErrCorrupt, name)
			return false
		}
		list, err := s.List(t.Context(), "")
		require.NoError(t, err)
		for _, e := range list {
			require.Equal(t, written[e.Key], string(e.Value), name)
		}
		require.NoError(t, s.Close())
		return true
	}
	for cut := 1; cut < len(whole); cut += 1777 {
		judge(fmt.Sprintf("cut at %d", cut), whole[:cut])
	}
	rng := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 300 {
		content := append([]byte{}, whole...)
		at, bit := rng.IntN(len(content)), rng.IntN(8)
		content[at] ^= 1 << bit
		if !judge(fmt.Sprintf("bit %d of byte %d", bit, at), content) {
			refused++
		}
	}
	require.Positive(t, refused)
}
