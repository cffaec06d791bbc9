package checkpoint_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// tableWorld has one table of rows of 3 values, 50,000 buckets to a shard at most, without rows.
func tableWorld(t testing.TB, buckets int, slots ...string) *world {
	t.Helper()
	w := newWorld(t, shard.Model{Layers: []shard.Layer{{Name: "t", Shape: []int{buckets, 3}, Sparse: true}}}, 1, slots...)
	for id := range w.shards {
		for b := range w.shards[id].table {
			w.shards[id].table[b] = checkpoint.Rows{Slots: make([][]float32, len(slots))}
		}
	}
	return w
}

// place is the shard and the block that an id belongs to.
func (w *world) place(id int64) (number, block int) {
	l := w.model.Layers[0]
	at := shard.Bucket(shard.Hash(id), int64(l.Shape[0])) * int64(l.Shape[1])
	number = slices.IndexFunc(w.cut, func(s shard.Shard) bool { return at < s.Range.End })
	return number, int(at-w.cut[number].Range.Begin) / checkpoint.BlockElems
}

// TestT30Ids saves rows of every kind of id in the blocks of their buckets, some more in an increment,
// and finds each with its values, in the table and in an export.
func TestT30Ids(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := tableWorld(t, 200_000, "a", "b")
	require.Greater(t, len(w.shards), 2)
	ids := []int64{0, -1, 1, math.MaxInt64, math.MinInt64, math.MinInt64 + 1, 1 << 32, -1 << 31}
	for range 200 {
		ids = append(ids, int64(w.random.Uint64()))
	}
	want := make(map[int64][]float32)
	var ref checkpoint.Ref
	for i, half := range [][]int64{ids[:100], ids[100:]} {
		for _, id := range half {
			number, b := w.place(id)
			w.addRow(number, b, id)
			rows := &w.shards[number].table[b]
			want[id] = rows.Weights[len(rows.Weights)-3:]
			w.shards[number].dirty[b] = true
		}
		ref = w.mustSave(t, s, []*checkpoint.Ref{nil, &ref}[i], 2)
	}
	c := open(t, s, ref.Name)
	requireEqual(t, w, load(t, c, "a", "b"))
	n, err := c.CountRows(t.Context(), "t")
	require.NoError(t, err)
	require.Equal(t, int64(len(want)), n)
	var order []int64
	require.NoError(t, c.ReadTable(t.Context(), "t", func(ids []int64, weights []float32) error {
		require.Len(t, weights, 3*len(ids))
		for i, id := range ids {
			require.Equal(t, bitsOf(want[id]), bitsOf(weights[3*i:3*i+3]), "id %d", id)
			order = append(order, id)
		}
		return nil
	}))
	require.ElementsMatch(t, ids, order)

	require.NoError(t, c.Export(t.Context(), s, "model", shard.Float32))
	header, data := tensorsOf(t, content(t, s, "model"))
	require.Equal(t, []int{len(ids)}, header["t/ids"].Shape)
	require.Equal(t, "I64", header["t/ids"].DType)
	require.Equal(t, []int{len(ids), 3}, header["t"].Shape)
	exported, weights := data["t/ids"], data["t"]
	for i, id := range order {
		require.Equal(t, uint64(id), binary.LittleEndian.Uint64(exported[8*i:]))
		for j, value := range want[id] {
			require.Equal(t, math.Float32bits(value), binary.LittleEndian.Uint32(weights[4*(3*i+j):]))
		}
	}
}

func bitsOf(values []float32) (bits []uint32) {
	for _, v := range values {
		bits = append(bits, math.Float32bits(v))
	}
	return bits
}

// tensor is an entry of the header of a safetensors file.
type tensor struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// tensorsOf takes a safetensors file apart.
func tensorsOf(t testing.TB, file string) (header map[string]tensor, data map[string][]byte) {
	t.Helper()
	n := binary.LittleEndian.Uint64([]byte(file[:8]))
	fields := make(map[string]json.RawMessage)
	require.NoError(t, json.Unmarshal([]byte(file[8:8+n]), &fields))
	header, data = make(map[string]tensor), make(map[string][]byte)
	for name, field := range fields {
		if name == "__metadata__" {
			continue
		}
		var entry tensor
		require.NoError(t, json.Unmarshal(field, &entry))
		header[name], data[name] = entry, []byte(file[8+n:])[entry.Offsets[0]:entry.Offsets[1]]
	}
	return header, data
}

// TestAligned looks where tensors lie: at multiples of the size of their elements, whatever waits.
// Programs that map a file into memory need that.
func TestAligned(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, bigModel(), 3, "m", "v")
	for range 60 {
		w.push()
	}
	ref := w.mustSave(t, s, nil, 1)
	header, _ := tensorsOf(t, content(t, s, ref.Name, "ps-0.safetensors"))
	seen := 0
	for name, entry := range header {
		size := map[string]int64{"U8": 1, "F32": 4, "I64": 8, "U64": 8}[entry.DType]
		require.Zero(t, entry.Offsets[0]%size, "%s of %s at %d", name, entry.DType, entry.Offsets[0])
		if size == 8 && entry.Shape[0] > 0 {
			seen++
		}
	}
	require.Greater(t, seen, 4)
}

// TestT24Deletes takes rows away until a block is empty, and more: an increment holds it without rows.
func TestT24Deletes(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := tableWorld(t, 40_000, "m")
	for i := range int64(50) {
		w.addRow(0, 1, i)
	}
	ref := w.mustSave(t, s, nil, 1)
	rows := &w.shards[0].table[1]
	for step := range 50 {
		for range min(7, len(rows.IDs)) {
			w.deleteRow(0, 1, w.random.IntN(len(rows.IDs)))
		}
		w.shards[0].dirty[1] = true
		ref = w.mustSave(t, s, &ref, 1)
		c := open(t, s, ref.Name)
		requireEqual(t, w, load(t, c, "m"))
		n, err := c.CountRows(t.Context(), "t")
		require.NoError(t, err)
		require.Equal(t, int64(max(50-7*(step+1), 0)), n)
		if n == 0 {
			break
		}
	}
	require.Empty(t, rows.IDs)
	w.addRow(0, 1, 7)
	w.shards[0].dirty[1] = true
	ref = w.mustSave(t, s, &ref, 1)
	requireEqual(t, w, load(t, open(t, s, ref.Name), "m"))
}

// sparseShard is a shard of two blocks of 2 rows of 3 values, with two slots.
func sparseShard() checkpoint.Shard {
	return checkpoint.Shard{
		ID: 3, Layer: "t", Begin: 6, End: 6 + 3*30_000, Slots: []string{"m", "v"}, Blocks: []int{0, 1},
		Dim: 3, SlotElems: []int{3, 1}, Rows: []int{2, 2}, Waiting: []int{5, 0},
	}
}

func TestWriteFileRefusesRows(t *testing.T) {
	for want, change := range map[string]func(s *checkpoint.Shard){
		"rows of 0 values, must be 1 to 65000":                      func(s *checkpoint.Shard) { s.Dim = 0 },
		"rows of -3 values":                                         func(s *checkpoint.Shard) { s.Dim = -3 },
		"rows of 65001 values":                                      func(s *checkpoint.Shard) { s.Dim = 65_001 },
		"elements [7, 90006), must be whole rows of 3":              func(s *checkpoint.Shard) { s.Begin++ },
		"elements [6, 90007), must be whole rows of 3":              func(s *checkpoint.Shard) { s.End++ },
		"values of a row in 1 slots, must be 2":                     func(s *checkpoint.Shard) { s.SlotElems = s.SlotElems[:1] },
		`2 values of a row in slot "v", must be 1 or 3`:             func(s *checkpoint.Shard) { s.SlotElems[1] = 2 },
		"rows of 1 blocks and waiting bytes of 2, must be 2":        func(s *checkpoint.Shard) { s.Rows = s.Rows[:1] },
		"rows of 2 blocks and waiting bytes of 3, must be 2":        func(s *checkpoint.Shard) { s.Waiting = append(s.Waiting, 0) },
		"block 0 with -1 rows of 44 bytes and 5 waiting bytes":      func(s *checkpoint.Shard) { s.Rows[0] = -1 },
		"block 1 with 2 rows of 44 bytes and -1 waiting":            func(s *checkpoint.Shard) { s.Waiting[1] = -1 },
		"2 rows of 44 bytes and 1073741825 waiting":                 func(s *checkpoint.Shard) { s.Waiting[1] = checkpoint.MaxRowsBytes + 1 },
		"24403223 rows of 44 bytes and 44 waiting bytes, limit 107": func(s *checkpoint.Shard) { s.Rows[1], s.Waiting[1] = checkpoint.MaxRowsBytes/44, 44 },
		"9223372036854775807 rows":                                  func(s *checkpoint.Shard) { s.Rows[1] = math.MaxInt },
		"fill was called":                                           func(*checkpoint.Shard) {},
		"rows of 0 values, must be 1":                               func(s *checkpoint.Shard) { s.Dim, s.Rows, s.Waiting = 0, nil, nil },
	} {
		s := checkpoint.Folder(t.TempDir())
		state := sparseShard()
		change(&state)
		_, err := checkpoint.WriteFile(t.Context(), s, "ckpt-00000001", "a", []checkpoint.Shard{state}, func(*checkpoint.Writer) error {
			return errors.New("fill was called")
		})
		require.ErrorContains(t, err, want)
		var where *checkpoint.Error
		require.ErrorAs(t, err, &where)
		require.Empty(t, files(t, s))
	}
}

// TestWriteRowsRefuses writes blocks with arrays of the wrong lengths, and dense ones.
func TestWriteRowsRefuses(t *testing.T) {
	good := func() *checkpoint.Rows {
		return &checkpoint.Rows{
			IDs: make([]int64, 2), State: make([]uint64, 2), Weights: make([]float32, 6),
			Slots: [][]float32{make([]float32, 6), make([]float32, 2)}, Waiting: make([]byte, 5),
		}
	}
	rows := func(change func(*checkpoint.Rows)) func(*checkpoint.Writer) error {
		return func(w *checkpoint.Writer) error {
			r := good()
			change(r)
			return w.WriteRows(3, 0, r)
		}
	}
	for want, fill := range map[string]func(*checkpoint.Writer) error{
		"block 0 of shard 3 with 1 ids, must be 2":             rows(func(r *checkpoint.Rows) { r.IDs = r.IDs[:1] }),
		"with 3 state words, must be 2":                        rows(func(r *checkpoint.Rows) { r.State = make([]uint64, 3) }),
		"with 5 weights, must be 6":                            rows(func(r *checkpoint.Rows) { r.Weights = r.Weights[:5] }),
		"with 1 slots, must be 2":                              rows(func(r *checkpoint.Rows) { r.Slots = r.Slots[:1] }),
		"with 6 values in slot v, must be 2":                   rows(func(r *checkpoint.Rows) { r.Slots[1] = r.Slots[0] }),
		"with 4 waiting bytes, must be 5":                      rows(func(r *checkpoint.Rows) { r.Waiting = r.Waiting[:4] }),
		"block 1 of shard 3 is out of turn, block 0":           func(w *checkpoint.Writer) error { return w.WriteRows(3, 1, good()) },
		"block 0 of shard 3 has rows, which WriteRows writes":  func(w *checkpoint.Writer) error { return w.WriteBlock(3, 0, nil) },
		"not all blocks were written, block 1 of shard 3 is n": rows(func(*checkpoint.Rows) {}),
		"block 0 of shard 4 is dense, WriteBlock writes it": func(w *checkpoint.Writer) error {
			second := good()
			second.Waiting = nil
			return errors.Join(w.WriteRows(3, 0, good()), w.WriteRows(3, 1, second), w.WriteRows(4, 0, good()))
		},
	} {
		s := checkpoint.Folder(t.TempDir())
		_, err := checkpoint.WriteFile(t.Context(), s, "ckpt-00000001", "a", []checkpoint.Shard{
			sparseShard(), {ID: 4, Layer: "w", End: 2, Blocks: []int{0}},
		}, fill)
		require.ErrorContains(t, err, want)
		require.Empty(t, files(t, s))
	}
}

// TestReadRowsMismatch asks for rows of another table or optimizer, for rows where there are none and
// for none where there are.
func TestReadRowsMismatch(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallTables(), 1, "m", "v")
	w.addRow(0, 0, 5)
	c := open(t, s, w.mustSave(t, s, nil, 1).Name)
	visits := 0
	read := func(id shard.ID, dim int, slots []string, elems []int) error {
		_, err := c.ReadRows(t.Context(), id, dim, slots, elems, func(int, *checkpoint.Rows) error { visits++; return nil })
		return err
	}
	table := func(layer string) error {
		return c.ReadTable(t.Context(), layer, func([]int64, []float32) error { visits++; return nil })
	}
	three, one := make([]float32, 3), make([]float32, 1)
	slots, elems := []string{"m", "v"}, []int{3, 1}
	_, dense := c.ReadShard(t.Context(), 0, make([]float32, 6), slots, make([]float32, 6), make([]float32, 6))
	_, count := c.CountRows(t.Context(), "b")
	match := smallTables()
	match.Layers[0].Sparse = false
	for want, err := range map[string]error{
		`rows of 3 values (0: dense), slots ["m" "v"] of [3 1]; 4, ["m" "v"], [3 1] wanted`: read(0, 4, slots, elems),
		`; 3, ["m"], [3] wanted`:                           read(0, 3, slots[:1], elems[:1]),
		`; 3, ["m" "v"], [3 3] wanted`:                     read(0, 3, slots, []int{3, 3}),
		`rows of 0 values (0: dense)`:                      read(1, 3, slots, elems),
		`; 0, ["m" "v"], [] wanted`:                        read(1, 0, slots, nil),
		"it is of a sparse layer, which ReadRows reads":    dense,
		"it is sparse, ReadTable reads it":                 c.ReadWeights(t.Context(), "t", 0, three),
		`layer "b": does not match: no such sparse layer`:  table("b"),
		`layer "t0": does not match: no such sparse layer`: table("t0"),
		`layer "b": does not match: no such sparse`:        count,
		`layer "t" is sparse: true, must be false`:         c.Match(match),
	} {
		require.ErrorIs(t, err, checkpoint.ErrMismatch, want)
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, read(2, 3, slots, elems), checkpoint.ErrNotFound)
	require.Zero(t, visits)
	require.NoError(t, read(0, 3, slots, elems))
	require.NoError(t, table("t"))
	require.Equal(t, 2, visits)
	require.NoError(t, c.ReadWeights(t.Context(), "b", 0, one))
	enough := errors.New("enough")
	_, err := c.ReadRows(t.Context(), 0, 3, slots, elems, func(int, *checkpoint.Rows) error { return enough })
	require.Equal(t, enough, err, "the error of visit comes back as it is")
}

// TestT27RowsVerified flips a bit of each tensor of one block: the blocks before it are visited, it
// is not.
func TestT27RowsVerified(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := tableWorld(t, 48_000, "m", "v")
	for i := range int64(9) {
		w.addRow(0, int(i%3), i)
	}
	w.shards[0].table[1].Waiting = []byte("x")
	ref := w.mustSave(t, s, nil, 1)
	path := filepath.Join(string(s), ref.Name, "ps-0.safetensors")
	whole := content(t, s, ref.Name, "ps-0.safetensors")
	header, _ := tensorsOf(t, whole)
	data := int64(8 + binary.LittleEndian.Uint64([]byte(whole[:8])))
	for _, name := range []string{"waiting", "ids", "state", "weights", "slot/m", "slot/v"} {
		at := header["t@65536/"+name].Offsets
		for _, offset := range []int64{at[0], at[1] - 1} {
			torn := []byte(whole)
			torn[data+offset] ^= 4
			require.NoError(t, os.WriteFile(path, torn, 0o600))
			c, err := checkpoint.Open(t.Context(), s, ref.Name)
			require.NoError(t, err)
			var visited []int
			_, err = c.ReadRows(t.Context(), 0, 3, w.slots, []int{3, 1}, func(b int, _ *checkpoint.Rows) error {
				visited = append(visited, b)
				return nil
			})
			require.ErrorIs(t, err, checkpoint.ErrDamaged)
			require.ErrorContains(t, err, "block 1 of shard 0")
			require.Equal(t, []int{0}, visited, name)
		}
	}
}

// TestOtherSlotsInChain commits an increment whose slots have other lengths: it does not fit its parent.
func TestOtherSlotsInChain(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallTables(), 1, "m")
	full := w.mustSave(t, s, nil, 1)
	other := newWorld(t, smallTables(), 1, "m", "v")
	_, err := checkpoint.Open(t.Context(), s, other.mustSave(t, s, &full, 1).Name)
	require.NoError(t, err, "the files are not looked into")
	c, err := checkpoint.Open(t.Context(), s, "ckpt-00000002")
	require.NoError(t, err)
	_, err = other.read(t.Context(), c, 0)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, `slots ["m"] of [3] values, increments to it have ["m" "v"] of [3 1]`)
}

// TestExportTable exports in the short types, and models whose names get in each other's way.
func TestExportTable(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallTables(), 1, "m")
	w.addRow(0, 0, -7)
	w.addRow(0, 0, 8)
	copy(w.shards[0].table[0].Weights, []float32{1, -2, 0.5, 4, 1e9, 0})
	c := open(t, s, w.mustSave(t, s, nil, 1).Name)
	require.NoError(t, c.Export(t.Context(), s, "half", shard.Float16))
	header, data := tensorsOf(t, content(t, s, "half"))
	require.Equal(t, tensor{"I64", []int{2}, [2]int64{0, 16}}, header["t/ids"])
	require.Equal(t, tensor{"F16", []int{2, 3}, [2]int64{16, 28}}, header["t"])
	require.Equal(t, tensor{"F16", []int{1}, [2]int64{28, 30}}, header["b"])
	require.Equal(t, []byte{0, 0x3c, 0, 0xc0, 0, 0x38, 0, 0x44, 0, 0x7c, 0, 0}, data["t"])
	require.ErrorContains(t, c.Export(t.Context(), s, "double", shard.Float64), "as float64")

	model := smallTables()
	model.Layers[1].Name = "t/ids"
	w = newWorld(t, model, 1)
	c = open(t, s, w.mustSave(t, s, nil, 1).Name)
	require.ErrorContains(t, c.Export(t.Context(), s, "twice", shard.Float32), `"t/ids"`)
}

// TestCommitRefusesRows commits tables that are cut within rows, or whose files say something else.
func TestCommitRefusesRows(t *testing.T) {
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallTables(), 1)
	w.cut = []shard.Shard{{ID: 0, Range: shard.Range{End: 2}}, {ID: 1, Range: shard.Range{Begin: 2, End: 6}}, {ID: 2, Range: shard.Range{Layer: 1, End: 1}}}
	m := checkpoint.Manifest{Name: "ckpt-00000001", Model: w.model, Shards: w.cut}
	_, err := checkpoint.Commit(t.Context(), s, m)
	require.ErrorContains(t, err, `shard 0 of layer "t" ends with element 2, must end with a row of 3`)

	w = newWorld(t, smallTables(), 1)
	states := []checkpoint.Shard{w.state(0, true), w.state(1, true)}
	for name, c := range map[string]struct {
		dim   int
		model shard.Model
		want  string
	}{
		"dense":     {0, smallTables(), `rows of 0 values of "t", must be 3`},
		"other dim": {2, smallTables(), `rows of 2 values of "t", must be 3`},
		"sparse":    {3, shard.Model{Layers: []shard.Layer{{Name: "t", Shape: []int{2, 3}}, {Name: "b", Shape: []int{1}}}}, `rows of 3 values of "t", must be 0`},
	} {
		s := checkpoint.Folder(t.TempDir())
		states[0].Dim, states[0].Rows, states[0].Waiting = c.dim, []int{0}, []int{0}
		if c.dim == 0 {
			states[0].Rows, states[0].Waiting = nil, nil
		}
		file, err := checkpoint.WriteFile(t.Context(), s, m.Name, "a", states, func(out *checkpoint.Writer) error {
			var err error
			if c.dim == 0 {
				err = out.WriteBlock(0, 0, make([]float32, 6))
			} else {
				err = out.WriteRows(0, 0, &checkpoint.Rows{})
			}
			return errors.Join(err, out.WriteBlock(1, 0, make([]float32, 1)))
		})
		require.NoError(t, err, name)
		_, err = checkpoint.Commit(t.Context(), s, checkpoint.Manifest{Name: m.Name, Model: c.model, Shards: newWorld(t, c.model, 1).cut, Files: []checkpoint.File{file}})
		require.NoError(t, err, name)
		err = openAll(t, s, m.Name)
		require.ErrorIs(t, err, checkpoint.ErrDamaged, name)
		require.ErrorContains(t, err, c.want, name)
	}
}
