package boltstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	bolt "go.etcd.io/bbolt"
)

// The file has one bucket per kind of thing. Each value is a CRC-32C of key and
// rest (4 bytes) and the rest; all integers are little-endian.
//
//	meta    "state"   format (4), revision (8), last lease (8)
//	keys    key       revision (8), lease (8), value
//	leases  id (8)    duration in nanoseconds (8)
const (
	bucketMeta   = "elasticps.store.meta"
	bucketKeys   = "elasticps.store.keys"
	bucketLeases = "elasticps.store.leases"
	keyState     = "state"
	format       = 1
)

// seal prefixes a value with the checksum of its key and itself.
func seal(key []byte, parts ...any) []byte {
	out := make([]byte, 4, 64)
	for _, p := range parts {
		switch p := p.(type) {
		case uint32:
			out = binary.LittleEndian.AppendUint32(out, p)
		case uint64:
			out = binary.LittleEndian.AppendUint64(out, p)
		case []byte:
			out = append(out, p...)
		}
	}
	binary.LittleEndian.PutUint32(out, checksum(key, out[4:]))
	return out
}

func checksum(key, rest []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(key, table), table, rest)
}

// unseal checks a value and returns the part after the checksum, which has at
// least atLeast bytes.
func unseal(key, value []byte, atLeast int) ([]byte, error) {
	if len(value) < 4+atLeast {
		return nil, fmt.Errorf("value of key %.64q has %d bytes, at least %d needed", key, len(value), 4+atLeast)
	}
	if sum := checksum(key, value[4:]); sum != binary.LittleEndian.Uint32(value) {
		return nil, fmt.Errorf("value of key %.64q has a wrong checksum", key)
	}
	return value[4:], nil
}

// Append implements store.Journal: one transaction with fsync.
func (f *file) Append(c store.Change) error {
	return guarded(f.path, func() error { return f.append(c) })
}

func (f *file) append(c store.Change) error {
	return f.db.Update(func(tx *bolt.Tx) error {
		keys, leases, meta := tx.Bucket([]byte(bucketKeys)), tx.Bucket([]byte(bucketLeases)), tx.Bucket([]byte(bucketMeta))
		for _, op := range c.Ops {
			key := []byte(op.Key)
			var err error
			if op.Value == nil {
				err = keys.Delete(key)
			} else {
				err = keys.Put(key, seal(key, uint64(c.Revision), uint64(op.Lease), op.Value))
			}
			if err != nil {
				return err
			}
		}
		state, err := readState(meta)
		if err != nil {
			return err
		}
		if c.Grant != 0 {
			id := binary.LittleEndian.AppendUint64(nil, uint64(c.Grant))
			if err := leases.Put(id, seal(id, uint64(c.TTL))); err != nil {
				return err
			}
			state.LastLease = max(state.LastLease, c.Grant)
		}
		if c.End != 0 {
			if err := leases.Delete(binary.LittleEndian.AppendUint64(nil, uint64(c.End))); err != nil {
				return err
			}
		}
		state.Revision = c.Revision
		return writeState(meta, state)
	})
}

func writeState(meta *bolt.Bucket, s store.State) error {
	return meta.Put([]byte(keyState), seal([]byte(keyState), uint32(format), uint64(s.Revision), uint64(s.LastLease)))
}

func readState(meta *bolt.Bucket) (store.State, error) {
	rest, err := unseal([]byte(keyState), meta.Get([]byte(keyState)), 20)
	if err != nil {
		return store.State{}, err
	}
	if v := binary.LittleEndian.Uint32(rest); v != format {
		return store.State{}, fmt.Errorf("format %d, this program reads %d", v, format)
	}
	return store.State{
		Revision:  store.Revision(binary.LittleEndian.Uint64(rest[4:])),
		LastLease: store.LeaseID(binary.LittleEndian.Uint64(rest[12:])),
	}, nil
}

// load reads the whole file and verifies it, or starts an empty one.
func (f *file) load() (store.State, error) {
	var state store.State
	fresh := false
	err := f.db.View(func(tx *bolt.Tx) error {
		buckets := 0
		if err := tx.ForEach(func([]byte, *bolt.Bucket) error { buckets++; return nil }); err != nil {
			return err
		}
		if fresh = buckets == 0; fresh {
			return nil
		}
		var err error
		state, err = readAll(tx)
		return err
	})
	if err != nil {
		return store.State{}, corrupt(f.path, "%v", err)
	}
	if !fresh {
		return state, nil
	}
	err = f.db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{bucketKeys, bucketLeases, bucketMeta} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return writeState(tx.Bucket([]byte(bucketMeta)), store.State{})
	})
	if err != nil {
		return store.State{}, fmt.Errorf("boltstore: %s: %w", f.path, err)
	}
	return store.State{}, nil
}

func readAll(tx *bolt.Tx) (store.State, error) {
	keys, leases, meta := tx.Bucket([]byte(bucketKeys)), tx.Bucket([]byte(bucketLeases)), tx.Bucket([]byte(bucketMeta))
	if keys == nil || leases == nil || meta == nil {
		return store.State{}, fmt.Errorf("not a store: bucket %s, %s or %s is missing", bucketMeta, bucketKeys, bucketLeases)
	}
	state, err := readState(meta)
	if err != nil {
		return store.State{}, err
	}
	state.Leases = make(map[store.LeaseID]time.Duration)
	err = leases.ForEach(func(id, value []byte) error {
		rest, err := unseal(id, value, 8)
		if err != nil || len(id) != 8 {
			return fmt.Errorf("lease %x: %w", id, err)
		}
		ttl := time.Duration(binary.LittleEndian.Uint64(rest))
		if ttl < store.MinLeaseTTL || ttl > store.MaxLeaseTTL {
			return fmt.Errorf("lease %x has a duration of %v", id, ttl)
		}
		state.Leases[store.LeaseID(binary.LittleEndian.Uint64(id))] = ttl
		return nil
	})
	if err != nil {
		return store.State{}, err
	}
	err = keys.ForEach(func(key, value []byte) error {
		e, err := readEntry(key, value, state.Revision)
		state.Entries = append(state.Entries, e)
		return err
	})
	return state, err
}

func readEntry(key, value []byte, last store.Revision) (store.StateEntry, error) {
	rest, err := unseal(key, value, 16)
	if err != nil {
		return store.StateEntry{}, err
	}
	e := store.StateEntry{
		Entry: store.Entry{Key: string(key), Value: append([]byte{}, rest[16:]...), Revision: store.Revision(binary.LittleEndian.Uint64(rest))},
		Lease: store.LeaseID(binary.LittleEndian.Uint64(rest[8:])),
	}
	if e.Revision == 0 || e.Revision > last {
		return e, fmt.Errorf("key %.64q has revision %d, the store %d", key, e.Revision, last)
	}
	if err := store.CheckKey(e.Key); err != nil {
		return e, err
	}
	return e, store.CheckValue(e.Value)
}

// checkFile looks at the two header pages before bbolt maps the file: that one
// is whole, and that the file is as long as they say. bbolt would fault on a
// file that was cut short.
func checkFile(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("boltstore: %w", err)
	}
	defer f.Close()
	const (
		pageHeader  = 16
		metaBytes   = 64
		magic       = 0xED0CDAED
		offPageSize = 8
		offHighest  = 40 // number of pages in use
		offSum      = 56 // FNV-1a of what is before it
	)
	pageSize, whole := int64(os.Getpagesize()), false
	for page := range int64(2) {
		buf := make([]byte, metaBytes)
		if _, err := f.ReadAt(buf, page*pageSize+pageHeader); err != nil && err != io.EOF {
			return fmt.Errorf("boltstore: %w", err)
		}
		sum := fnv.New64a()
		sum.Write(buf[:offSum])
		if binary.LittleEndian.Uint32(buf) != magic || binary.LittleEndian.Uint64(buf[offSum:]) != sum.Sum64() {
			continue
		}
		whole = true
		pageSize = int64(binary.LittleEndian.Uint32(buf[offPageSize:]))
		highest := binary.LittleEndian.Uint64(buf[offHighest:])
		if pageSize < 512 || pageSize > 1<<16 || highest > uint64(size/pageSize) {
			return corrupt(path, "%d bytes, its header says %d pages of %d", size, highest, pageSize)
		}
	}
	if !whole {
		return corrupt(path, "%d bytes without a bbolt header", size)
	}
	return nil
}
