package checkpoint_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// world is the state of a job as servers hold it: what checkpoints are taken of.
type world struct {
	model  shard.Model
	cut    []shard.Shard
	slots  []string
	shards []liveShard
	random *rand.Rand
}

type liveShard struct {
	arrays  [][]float32 // weights, then slots; of a dense layer
	dim     int         // of a sparse layer
	table   []checkpoint.Rows
	dirty   map[int]bool
	steps   []uint64
	windows shard.Windows
	applied uint64
}

// bigModel has shards of several blocks, a block cut short, names that need escapes, a scalar, a
// layer without elements and tables.
func bigModel() shard.Model {
	return shard.Model{Layers: []shard.Layer{
		{Name: "fc1.weight", Shape: []int{3, checkpoint.BlockElems + 77}, Init: shard.Initializer{Kind: shard.Normal, Scale: 0.1, Seed: 7}},
		{Name: "none", Shape: []int{0, 5}},
		{Name: `quote " <é> @12/slot/m`, Shape: []int{7, 5, 2}, Wire: shard.BFloat16},
		{Name: "scalar"},
		{Name: "fc2.weight", Shape: []int{2 * checkpoint.BlockElems}, Init: shard.Initializer{Kind: shard.Assigned}},
		{Name: `rows "é"/@1`, Shape: []int{100_000, 5}, Sparse: true, Init: shard.Initializer{Kind: shard.Uniform, Scale: 0.1}},
		{Name: "bias", Shape: []int{1, 1}, Sparse: true},
	}}
}

// smallModel makes checkpoints of a few hundred bytes.
func smallModel() shard.Model {
	return shard.Model{Layers: []shard.Layer{{Name: "w", Shape: []int{2, 3}}, {Name: "b", Shape: []int{3}}}}
}

// smallTables makes checkpoints of a few hundred bytes with rows.
func smallTables() shard.Model {
	return shard.Model{Layers: []shard.Layer{{Name: "t", Shape: []int{2, 3}, Sparse: true}, {Name: "b", Shape: []int{1}}}}
}

func newWorld(t testing.TB, model shard.Model, seed uint64, slots ...string) *world {
	t.Helper()
	cut, err := shard.Partition(model, shard.PartitionOptions{MaxShardBytes: 600_000})
	require.NoError(t, err)
	w := &world{model: model, cut: cut, slots: slots, random: rand.New(rand.NewPCG(seed, 0))}
	for _, s := range cut {
		live := liveShard{dirty: make(map[int]bool), steps: make([]uint64, (s.Range.Elems()+checkpoint.BlockElems-1)/checkpoint.BlockElems)}
		if l := model.Layers[s.Range.Layer]; l.Sparse {
			live.dim, live.table = l.Shape[1], make([]checkpoint.Rows, len(live.steps))
			w.shards = append(w.shards, live)
			for b := range live.table {
				live.table[b].Slots = make([][]float32, len(slots))
				for range b % 4 {
					w.addRow(len(w.shards)-1, b, w.random.Int64())
				}
			}
			continue
		}
		for range 1 + len(slots) {
			live.arrays = append(live.arrays, make([]float32, s.Range.Elems()))
		}
		for i := range live.arrays[0] {
			live.arrays[0][i] = w.random.Float32()
		}
		w.shards = append(w.shards, live)
	}
	return w
}

// push changes one block of one shard in all arrays, and what is counted with it.
func (w *world) push() {
	id := w.random.IntN(len(w.shards))
	live := &w.shards[id]
	b := w.random.IntN(len(live.steps))
	if live.dim > 0 {
		w.pushRows(id, b)
	}
	for _, a := range live.arrays {
		lo, hi := w.bounds(id, b)
		for range 5 {
			a[lo+w.random.IntN(hi-lo)] = math.Float32frombits(w.random.Uint32()) // NaN and infinities too
		}
	}
	live.dirty[b] = true
	live.steps[b]++
	live.applied++
	live.windows.Admit(1+w.random.Uint64N(3), live.applied, 0)
}

func (w *world) bounds(id, b int) (lo, hi int) {
	return b * checkpoint.BlockElems, min((b+1)*checkpoint.BlockElems, len(w.shards[id].arrays[0]))
}

// state is the shard as it is saved, with all blocks or those that have changed.
func (w *world) state(id int, full bool) checkpoint.Shard {
	live, r := &w.shards[id], w.cut[id].Range
	s := checkpoint.Shard{
		ID: shard.ID(id), Layer: w.model.Layers[r.Layer].Name, Begin: r.Begin, End: r.End,
		Epoch: shard.Epoch(id + 1), Applied: live.applied, Clock: live.applied / 2, Slots: w.slots,
		Windows: live.windows.Append(nil),
	}
	for b, steps := range live.steps {
		s.BlockState = binary.LittleEndian.AppendUint64(s.BlockState, steps)
		if full || live.dirty[b] {
			s.Blocks = append(s.Blocks, b)
		}
	}
	w.stateRows(&s)
	return s
}

// write gives the blocks of the shards to a file.
func (w *world) write(states []checkpoint.Shard) func(*checkpoint.Writer) error {
	return func(out *checkpoint.Writer) error {
		for _, s := range states {
			for _, b := range s.Blocks {
				if s.Dim > 0 {
					if err := out.WriteRows(s.ID, b, &w.shards[s.ID].table[b]); err != nil {
						return err
					}
					continue
				}
				lo, hi := w.bounds(int(s.ID), b)
				var slots [][]float32
				for _, a := range w.shards[s.ID].arrays[1:] {
					slots = append(slots, a[lo:hi])
				}
				if err := out.WriteBlock(s.ID, b, w.shards[s.ID].arrays[0][lo:hi], slots...); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// save takes a checkpoint with the shards spread over servers, each with a file of its own.
func (w *world) save(ctx context.Context, s checkpoint.Storage, parent *checkpoint.Ref, servers int) (checkpoint.Ref, error) {
	name, err := checkpoint.Next(ctx, s)
	if err != nil {
		return checkpoint.Ref{}, err
	}
	m := checkpoint.Manifest{
		Name: name, Parent: parent, Time: time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC), Clock: 12,
		Job: json.RawMessage(`{"optimizer":"adam <1>"}`), Model: w.model, Shards: w.cut,
	}
	for server := range servers {
		var states []checkpoint.Shard
		for id := server; id < len(w.shards); id += servers {
			states = append(states, w.state(id, parent == nil))
		}
		f, err := checkpoint.WriteFile(ctx, s, name, fmt.Sprintf("ps-%d.safetensors", server), states, w.write(states))
		if err != nil {
			return checkpoint.Ref{}, err
		}
		m.Files = append(m.Files, f)
	}
	ref, err := checkpoint.Commit(ctx, s, m)
	if err == nil {
		for i := range w.shards {
			clear(w.shards[i].dirty)
		}
	}
	return ref, err
}

func (w *world) mustSave(t testing.TB, s checkpoint.Storage, parent *checkpoint.Ref, servers int) checkpoint.Ref {
	t.Helper()
	ref, err := w.save(t.Context(), s, parent, servers)
	require.NoError(t, err)
	return ref
}

// load is a world put back from a checkpoint.
func load(t testing.TB, c *checkpoint.Checkpoint, slots ...string) *world {
	t.Helper()
	m := c.Manifest()
	w := newWorld(t, m.Model, 99, slots...)
	require.Equal(t, w.cut, m.Shards)
	for id := range w.shards {
		live := &w.shards[id]
		s, err := w.read(t.Context(), c, id)
		require.NoError(t, err)
		live.applied = s.Applied
		live.windows, err = shard.DecodeWindows(s.Windows)
		require.NoError(t, err)
		for b := range live.steps {
			live.steps[b] = binary.LittleEndian.Uint64(s.BlockState[8*b:])
		}
		want := w.state(id, true)
		want.Blocks, want.Rows, want.Waiting = s.Blocks, nil, nil
		w.stateRows(&want)
		require.Equal(t, want, s)
	}
	return w
}

// read fills one shard from a checkpoint.
func (w *world) read(ctx context.Context, c *checkpoint.Checkpoint, id int) (checkpoint.Shard, error) {
	live := &w.shards[id]
	if live.dim > 0 {
		return w.readRows(ctx, c, id)
	}
	return c.ReadShard(ctx, shard.ID(id), live.arrays[0], w.slots, live.arrays[1:]...)
}

// requireEqual compares two worlds to the bit.
func requireEqual(t testing.TB, want, got *world) {
	t.Helper()
	require.Equal(t, want.cut, got.cut)
	for id := range want.shards {
		a, b := &want.shards[id], &got.shards[id]
		require.Equal(t, a.applied, b.applied, "shard %d", id)
		require.Equal(t, a.steps, b.steps, "shard %d", id)
		require.Equal(t, a.windows.Append(nil), b.windows.Append(nil), "shard %d", id)
		requireEqualRows(t, a.table, b.table)
		for i := range a.arrays {
			require.True(t, slices.EqualFunc(a.arrays[i], b.arrays[i], func(x, y float32) bool {
				return math.Float32bits(x) == math.Float32bits(y)
			}), "array %d of shard %d", i, id)
		}
	}
}

func open(t testing.TB, s checkpoint.Storage, name string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(t.Context(), s, name)
	require.NoError(t, err)
	require.NoError(t, c.Verify(t.Context()))
	return c
}
