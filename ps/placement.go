package ps

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elasticps/elasticps/shard"
	"github.com/elasticps/elasticps/shard/store"
)

const (
	// reserved is how many worker incarnations are taken from the store at a time.
	reserved = 1024
	// maxIncarnation is the last one that a range may begin with.
	maxIncarnation = math.MaxUint64 - reserved
)

// placement is who owns what, as the store has it. It is changed by compare-and-swap
// only; what is in memory is what the last swap or read has shown.
type placement struct {
	kv     store.KV
	prefix string

	naming    sync.Mutex // one write of an address at a time
	mu        sync.Mutex
	seen      map[shard.ServerID]address // the run of each server that counts, and where it is
	open      map[shard.ServerID]bool    // whether another one was written down is not known
	records   []shard.Record
	revisions []store.Revision // 0: no record yet
	writing   []sync.Mutex     // by shard: one write at a time
}

func newPlacement(kv store.KV, job string, shards int) *placement {
	p := &placement{
		kv: kv, prefix: "elasticps/" + job + "/", seen: map[shard.ServerID]address{}, open: map[shard.ServerID]bool{},
		records: make([]shard.Record, shards), revisions: make([]store.Revision, shards),
		writing: make([]sync.Mutex, shards),
	}
	for i := range p.records {
		p.records[i].Assignment.Shard = shard.ID(i)
	}
	return p
}

func (p *placement) key(id shard.ID) string { return fmt.Sprintf("%sshard/%08d", p.prefix, id) }

// digests returns the digest of a job, and then a line for each field with its name and digest,
// which tell what differs.
func digests(job Job) ([]string, error) {
	text, err := json.Marshal(job)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return nil, fmt.Errorf("ps: digest of job %q: %w", job.Name, err)
	}
	sum := func(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }
	lines := []string{sum(text)}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		lines = append(lines, name+" "+sum(fields[name])[:8])
	}
	return lines, nil
}

// claim writes the digests of the job, or compares them: a store is not taken over by
// another model.
func (p *placement) claim(ctx context.Context, job Job) error {
	mine, err := digests(job)
	if err != nil {
		return err
	}
	_, err = p.kv.CompareAndSwap(ctx, p.prefix+"job", 0, []byte(strings.Join(mine, "\n")))
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	e, err := p.kv.Get(ctx, p.prefix+"job")
	if err != nil {
		return err
	}
	other := strings.Split(string(e.Value), "\n")
	if other[0] == mine[0] {
		return nil
	}
	var differ []string
	for _, line := range slices.Concat(mine[1:], other[1:]) {
		name, _, _ := strings.Cut(line, " ")
		if !(slices.Contains(mine, line) && slices.Contains(other, line)) && !slices.Contains(differ, name) {
			differ = append(differ, name)
		}
	}
	return fmt.Errorf("%w: the store has job %q with another description, of which these differ: %v; it is fixed, another job needs another name",
		ErrConflict, job.Name, differ)
}

// identity is the name of the job that has this store, among others of the same model that
// write to the same storage.
func (p *placement) identity(ctx context.Context) (string, error) {
	_, err := p.kv.CompareAndSwap(ctx, p.prefix+"identity", 0, []byte(randomID()))
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return "", err
	}
	e, err := p.kv.Get(ctx, p.prefix+"identity")
	return string(e.Value), err
}

// load reads all records.
func (p *placement) load(ctx context.Context) error {
	entries, err := p.kv.List(ctx, p.prefix+"shard/")
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entries {
		r, err := shard.DecodeRecord(e.Value)
		if err != nil {
			return fmt.Errorf("ps: store key %q: %w", e.Key, err)
		}
		id := int(r.Assignment.Shard)
		if id >= len(p.records) || p.key(r.Assignment.Shard) != e.Key {
			return fmt.Errorf("%w: store key %q holds shard %d of %d", ErrConflict, e.Key, id, len(p.records))
		}
		p.records[id], p.revisions[id] = r, e.Revision
	}
	return nil
}

// reserve takes a range of worker incarnations that nobody else will get, above one.
func (p *placement) reserve(ctx context.Context, above uint64) (first, limit uint64, err error) {
	key := p.prefix + "incarnation"
	for {
		e, err := p.kv.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, 0, err
		}
		// In a store without history the first number is a time: servers may remember
		// workers of a coordinator whose store is gone.
		next := uint64(time.Now().UnixMicro())
		if err == nil {
			next, err = strconv.ParseUint(string(e.Value), 10, 64)
			if err == nil && (next == 0 || next > maxIncarnation) {
				err = fmt.Errorf("%w: %d, must be in [1, %d]", ErrConflict, next, uint64(maxIncarnation))
			}
			if err != nil {
				return 0, 0, fmt.Errorf("ps: store key %q: %w", key, err)
			}
		}
		if next = max(next, min(above, maxIncarnation)+1); next > maxIncarnation {
			return 0, 0, fmt.Errorf("%w: incarnation %d, at most %d", ErrConflict, next, uint64(maxIncarnation))
		}
		_, err = p.kv.CompareAndSwap(ctx, key, e.Revision, strconv.AppendUint(nil, next+reserved, 10))
		if err == nil {
			return next, next + reserved, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return 0, 0, err
		}
	}
}

// record returns what is known of a shard.
func (p *placement) record(id shard.ID) shard.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.records[id]
}

// swap writes a record of the shard's move in place of the one that is known, with its
// followers, or fails with the error of the store; ErrConflict if somebody else has
// changed it, or another move has begun.
func (p *placement) swap(ctx context.Context, r shard.Record) error {
	return p.change(ctx, r.Assignment.Shard, func(cur shard.Record) (shard.Record, error) {
		if !r.Succeeds(cur) {
			return cur, fmt.Errorf("%w: shard %d: attempt %d in place of attempt %d",
				store.ErrConflict, r.Assignment.Shard, r.Assignment.Attempt, cur.Assignment.Attempt)
		}
		return r.Onto(cur), nil
	})
}

// change replaces the record that is known by what f makes of it; an error of f is
// returned as it is, and a record that f leaves as it was is not written.
func (p *placement) change(ctx context.Context, id shard.ID, f func(shard.Record) (shard.Record, error)) error {
	p.writing[id].Lock()
	defer p.writing[id].Unlock()
	p.mu.Lock()
	cur, old := p.records[id], p.revisions[id]
	p.mu.Unlock()
	next, err := f(cur)
	if err != nil || (next.Equal(cur) && old != 0) {
		return err
	}
	text, err := next.Encode()
	if err != nil {
		return err
	}
	revision, err := p.kv.CompareAndSwap(ctx, p.key(id), old, text)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.records[id], p.revisions[id] = next, revision
	p.mu.Unlock()
	return nil
}

// put writes a key that only the coordinator that leads writes. While the store cannot be
// reached, or it is not known whether it has the value, it is asked again with the same
// one. The error wraps store.ErrConflict when another coordinator has written the key, and
// ErrDeposed when this one must not.
func (p *placement) put(ctx context.Context, key string, old store.Revision, value []byte) (store.Revision, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, storeTimeout)
		revision, err := p.kv.CompareAndSwap(attempt, key, old, value)
		var now store.Entry
		var readErr error
		if err != nil {
			now, readErr = p.kv.Get(attempt, key)
		}
		cancel()
		switch known := readErr == nil || errors.Is(readErr, store.ErrNotFound); {
		case err == nil:
			return revision, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case known && now.Revision != old && bytes.Equal(now.Value, value):
			return now.Revision, nil
		case known && now.Revision != old, errors.Is(err, ErrDeposed), final(err):
			return 0, fmt.Errorf("ps: store key %q: %w", key, err)
		}
		sleep(ctx, rejoinPause)
	}
}

// read fetches the record of one shard again.
func (p *placement) read(ctx context.Context, id shard.ID) (shard.Record, error) {
	p.writing[id].Lock()
	defer p.writing[id].Unlock()
	e, err := p.kv.Get(ctx, p.key(id))
	if err != nil {
		return shard.Record{}, err
	}
	r, err := shard.DecodeRecord(e.Value)
	if err != nil {
		return shard.Record{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Revision < p.revisions[id] {
		return shard.Record{}, fmt.Errorf("%w: shard %d: revision %d was read after %d", store.ErrUnknown, id, e.Revision, p.revisions[id])
	}
	p.records[id], p.revisions[id] = r, e.Revision
	return r, nil
}

// owners is the present map.
func (p *placement) owners() shard.Map {
	all, _ := p.page(0, len(p.records))
	return shard.MapOf(all)
}

// page returns the assignments of at most n shards from first on, and the version
// of the whole map.
func (p *placement) page(first, n int) ([]shard.Assignment, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = min(max(first, 0), len(p.records))
	var version uint64
	for _, r := range p.records {
		version += uint64(r.Assignment.Epoch)
	}
	var out []shard.Assignment
	for _, r := range p.records[first:min(first+n, len(p.records))] {
		out = append(out, r.Assignment)
	}
	return out, version
}

// unplaced returns the shards that have no record.
func (p *placement) unplaced() []shard.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []shard.ID
	for i, rev := range p.revisions {
		if rev == 0 {
			ids = append(ids, shard.ID(i))
		}
	}
	return ids
}

// all returns what is known of every shard.
func (p *placement) all() []shard.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.records)
}

// pending returns the moves that were under way.
func (p *placement) pending() []shard.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []shard.Record
	for _, r := range p.records {
		if r.Pending != nil {
			out = append(out, r)
		}
	}
	return out
}
