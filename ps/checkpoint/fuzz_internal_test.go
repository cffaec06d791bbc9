package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden returns the files of testdata/golden whose names end in suffix.
func golden(t testing.TB, suffix string) [][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/golden/ckpt-*/*" + suffix)
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
		at := place{}
		for s := range l.rows {
			for i, b := range l.rows[s].Blocks {
				require.Equal(t, at, l.values(s, i))
				at.offset += 4 * int64(l.rows[s].blockElems(b)) * int64(1+len(l.rows[s].Slots))
				at.tensor += 1 + len(l.rows[s].Slots)
			}
		}
		require.LessOrEqual(t, at.offset, l.sums.offset)
		require.Equal(t, l.sums.offset+4*int64(l.sums.tensor), l.bytes)
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
