package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// golden returns the files of the checkpoints of testdata whose names end in suffix.
func golden(t testing.TB, suffix string) [][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/golden*/ckpt-*/*" + suffix)
	require.NoError(t, err)
	require.NotEmpty(t, names)
	var list [][]byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		list = append(list, b)
	}
	return list
}

// FuzzHeader decodes headers: what is taken is what this package writes, and fits the file.
func FuzzHeader(f *testing.F) {
	for _, file := range golden(f, ".safetensors") {
		f.Add(file[sizeBytes : sizeBytes+int(file[0])+int(file[1])<<8])
	}
	f.Add([]byte(`{"__metadata__":{"format":"elasticps.shards","version":"1","shards":"[{}]"}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		l, err := decodeLayout(src)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatalf("%v is none of the errors", err)
			}
			return
		}
		again, err := encodeHeader(l.header)
		require.NoError(t, err)
		require.Equal(t, string(src), string(again[sizeBytes:]))
		requireLayout(t, l)
	})
}

// requireLayout checks that blocks lie one behind the other, each with all that is in it and no more
// than whoever reads it has memory for, and that ids lie at a multiple of their size.
func requireLayout(t *testing.T, l *layout) {
	at := place{}
	for s := range l.shards {
		e := &l.shards[s]
		for i, b := range e.Blocks {
			require.Equal(t, at, l.values(s, i))
			sizes := e.appendSizes(nil, i, at.offset)
			require.Len(t, sizes, e.tensors())
			if e.Dim == 0 {
				require.Equal(t, slices.Repeat([]int{4 * e.blockElems(b)}, 1+len(e.Slots)), sizes)
			} else {
				require.Zero(t, (at.offset+int64(sizes[0]))%8)
				require.Less(t, sizes[0]-e.Waiting[i], 8)
				require.Equal(t, []int{8 * e.Rows[i], 8 * e.Rows[i], 4 * e.Rows[i] * e.Dim}, sizes[1:4])
			}
			total := 0
			for _, n := range sizes {
				require.GreaterOrEqual(t, n, 0)
				total += n
			}
			require.Less(t, total, MaxRowsBytes+8)
			at.offset += int64(total)
			at.tensor += len(sizes)
		}
	}
	require.LessOrEqual(t, at.offset, l.sums.offset)
	require.Equal(t, l.sums.offset+4*int64(l.sums.tensor), l.bytes)
}

// FuzzShards lays out what a header may say of shards. What fits is written as a header that says it
// again.
func FuzzShards(f *testing.F) {
	for _, file := range golden(f, ".safetensors") {
		l, err := decodeLayout(file[sizeBytes : sizeBytes+int(file[0])+int(file[1])<<8])
		require.NoError(f, err)
		text, err := json.Marshal(l.shards)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`[{"id":1,"layer":"t","end":4,"slots":["m"],"blocks":[0],"dim":4,"slot_elems":[1],"rows":[9],"waiting_bytes":[3]}]`))
	f.Fuzz(func(t *testing.T, src []byte) {
		shards, err := decodeList(src, 1000, (*entry).validate)
		if err != nil {
			return
		}
		l, err := layoutOf(shards)
		if err != nil {
			return
		}
		requireLayout(t, l)
		head, err := encodeHeader(l.header)
		require.NoError(t, err)
		again, err := decodeLayout(head[sizeBytes:])
		require.NoError(t, err)
		require.Equal(t, l.places, again.places)
		require.Equal(t, l.blocks, again.blocks)
		require.Equal(t, l.bytes, again.bytes)
	})
}

// FuzzManifest decodes what stands between a right beginning and a right end. What is taken encodes to
// what decodes to the same.
func FuzzManifest(f *testing.F) {
	for _, text := range golden(f, ".json") {
		f.Add(text[:len(text)-digestBytes])
	}
	f.Add([]byte(`{"format":"elasticps.checkpoint","version":1,"shards":[[0,0,1],[]]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, digest, err := decodeManifest(Sealed(string(body) + strings.Repeat(" ", digestBytes)))
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatalf("%v is none of the errors", err)
			}
			return
		}
		require.NotEmpty(t, digest)
		text, digest, err := m.encode()
		require.NoError(t, err)
		again, digestAgain, err := decodeManifest(text)
		require.NoError(t, err)
		require.Equal(t, digest, digestAgain)
		textAgain, _, err := again.encode()
		require.NoError(t, err)
		require.Equal(t, string(text), string(textAgain))
	})
}

// TestHostileMemory decodes what says much more than it is: memory stays within a few times the
// length of the input (I9).
func TestHostileMemory(t *testing.T) {
	const n = 4 << 20
	shards := func(rows string) []byte {
		text, err := json.Marshal(rows)
		require.NoError(t, err)
		return []byte(`{"__metadata__":{"format":"elasticps.shards","version":"1","shards":` + string(text) + `}}`)
	}
	row := func(blocks string) string {
		return `{"id":0,"layer":"w","begin":0,"end":1099511627776,"slots":[],"blocks":[` + blocks + `]}`
	}
	table := func(lists string) []byte {
		return shards(`[{"id":0,"layer":"w","begin":0,"end":65536,"slots":[],"blocks":[0],"dim":1,` + lists + `}]`)
	}
	manifest := func(key, value string) []byte {
		fields := map[string]json.RawMessage{"layers": json.RawMessage(`[]`), "shards": json.RawMessage(`[]`), "files": json.RawMessage(`[]`)}
		fields[key] = json.RawMessage(value)
		fields["format"], fields["version"] = json.RawMessage(`"`+manifestFormat+`"`), json.RawMessage(`1`)
		fields["kind"] = json.RawMessage(`"full"`)
		body, err := json.Marshal(fields)
		require.NoError(t, err)
		return Sealed(string(body[:len(body)-1]) + strings.Repeat(" ", digestBytes))
	}
	header := func(src []byte) error {
		_, err := decodeLayout(src)
		return err
	}
	document := func(src []byte) error {
		_, _, err := decodeManifest(src)
		return err
	}
	list := func(item string) string {
		return "[" + strings.Repeat(item+",", n/(len(item)+1)) + item + "]"
	}
	for name, c := range map[string]struct {
		decode func([]byte) error
		src    []byte
	}{
		"empty rows":      {header, shards(list("{}"))},
		"rows":            {header, shards(list(row("")))},
		"one block":       {header, shards("[" + row(strings.Trim(list("0"), "[]")) + "]")},
		"rows of blocks":  {header, table(`"waiting_bytes":[0],"rows":` + list("0"))},
		"waiting bytes":   {header, table(`"rows":[0],"waiting_bytes":` + list("0"))},
		"slot values":     {header, table(`"rows":[0],"waiting_bytes":[0],"slot_elems":` + list("1"))},
		"many lists":      {header, shards(list(`{"slots":[],"blocks":[],"rows":[1,2,3,4,5,6,7,8],"waiting_bytes":[0,0,0]}`))},
		"deep":            {header, shards(strings.Repeat("[", n))},
		"tensors":         {header, []byte(`{"__metadata__":{"format":"elasticps.shards","version":"1","shards":"[]"},"a":` + list("0") + "}")},
		"empty layers":    {document, manifest("layers", list("{}"))},
		"layers":          {document, manifest("layers", list(`{"dtype":"float32","wire":"float32"}`))},
		"shape":           {document, manifest("layers", `[{"dtype":"float32","wire":"float32","shape":`+list("0")+`}]`)},
		"empty shards":    {document, manifest("shards", list("[]"))},
		"shards":          {document, manifest("shards", list("[0,0,1]"))},
		"files":           {document, manifest("files", list(`{"name":"a"}`))},
		"shards of files": {document, manifest("files", `[{"name":"a","shards":`+list("0")+`}]`)},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := c.decode(c.src)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrDamaged)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16*n), "memory taken for %d bytes", len(c.src))
		})
	}
}

// TestHostileRows reads a short file whose header, which is what it must be, promises blocks of as
// many rows as there may be: nothing is allocated for them (I9).
func TestHostileRows(t *testing.T) {
	e := entry{
		Layer: "t", End: 65_000 * 1000, Slots: []string{"m"}, Blocks: ascending{0, 1, 991}, Dim: 65_000, SlotElems: counts{65_000},
		Rows: counts{MaxRowsBytes / 520_016, 0, 1}, Waiting: counts{0, MaxRowsBytes, 3},
	}
	l, err := layoutOf([]entry{e})
	require.NoError(t, err)
	requireLayout(t, l)
	head, err := encodeHeader(l.header)
	require.NoError(t, err)
	s := Folder(t.TempDir())
	require.NoError(t, os.MkdirAll(s.at("ckpt-00000001"), 0o700))
	require.NoError(t, os.WriteFile(s.at("ckpt-00000001/a"), append(head, make([]byte, 1000)...), 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Describe(context.Background(), s, "ckpt-00000001", "a")
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, fmt.Sprintf("%d bytes, its header says %d", len(head)+1000, int64(len(head))+l.bytes))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	e.Rows[0]++
	_, err = layoutOf([]entry{e})
	require.ErrorContains(t, err, "block 0 with 2065 rows of 520016 bytes and 0 waiting bytes, limit 1073741824 in all")
}

// TestManifestVersion asks for the version that an initializer needs which the first one lacks.
func TestManifestVersion(t *testing.T) {
	m := Manifest{Model: shard.Model{Layers: []shard.Layer{{Name: "w"}}}}
	for kind, want := range map[shard.InitKind]int{shard.Zeros: 1, shard.Assigned: 1, shard.Assigned + 1: 2} {
		m.Model.Layers[0].Init.Kind = kind
		require.Equal(t, want, m.version())
	}
}

// TestHostileLength reads files whose first eight bytes promise a header that is not there.
func TestHostileLength(t *testing.T) {
	for _, file := range golden(t, "ps-0.safetensors")[:1] {
		for _, length := range []uint64{1 << 63, ^uint64(0), MaxHeaderBytes + 1, uint64(len(file)) - 7, 0} {
			s := Folder(t.TempDir())
			torn := append([]byte(nil), file...)
			for i := range sizeBytes {
				torn[i] = byte(length >> (8 * i))
			}
			require.NoError(t, os.MkdirAll(s.at("ckpt-00000001"), 0o700))
			require.NoError(t, os.WriteFile(s.at("ckpt-00000001/a"), torn, 0o600))
			_, err := Describe(context.Background(), s, "ckpt-00000001", "a")
			require.ErrorIs(t, err, ErrDamaged, "%d", length)
		}
	}
}
