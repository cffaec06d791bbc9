package actor

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
)

// FuzzFrame feeds bodies of frames to the parsers: no panic, views only into the body.
func FuzzFrame(f *testing.F) {
	e := &encoder{}
	e.begin(kindCast)
	e.name("dst")
	e.name("from")
	e.name("type")
	f.Add(byte(kindCast), e.b[frameHeader:])
	f.Add(byte(kindFail), []byte{1, 2, 3, 'a', 'b', 'c', 1, 'd', 4, 't', 'e', 'x', 't'})
	f.Add(byte(kindMonitorExit), []byte{1, 'a', 1, 'b', 1, 2, 3, 4, 5, 6})
	f.Add(byte(kindCredit), []byte{1, 'a', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, k byte, body []byte) {
		keep := bytes.Clone(body)
		cast, err := parseCast(body)
		if err == nil && len(cast.dst)+len(cast.from)+len(cast.typ)+len(cast.payload)+3 != len(body) {
			t.Fatal("a cast's parts do not add up to its body")
		}
		_, _ = parseCall(body)
		_, _ = parseReply(body)
		if r, err := parseFail(body); err == nil && len(r.codes) > maxCodes {
			t.Fatalf("%d codes", len(r.codes))
		}
		_, _ = parseFlow(kind(k), body)
		_, _ = parseMonitor(kind(k), body)
		_, _ = parseProbe(body)
		_, _ = decodeHello(body)
		require.Equal(t, keep, body)
	})
}

// fuzzTarget has what a payload may hold.
type fuzzTarget struct {
	I int64
	S string
	B []byte
	L []string
	M map[string]int64
	N map[string]map[string]string
	P *fuzzTarget
	A any
	R []Ref
}

// FuzzPayload decodes payloads: no panic, a typed error, and what is accepted is
// encoded to something that decodes to the same.
func FuzzPayload(f *testing.F) {
	enc := func(v any) []byte {
		var buf bytes.Buffer
		e := msgpack.NewEncoder(&buf)
		e.UseArrayEncodedStructs(true)
		if err := e.Encode(v); err != nil {
			f.Fatal(err)
		}
		return buf.Bytes()
	}
	f.Add(enc(fuzzTarget{}))
	f.Add(enc(fuzzTarget{I: -1, S: "s", B: []byte{1}, L: []string{"a"}, M: map[string]int64{"k": 1}, P: &fuzzTarget{S: "in"}, A: []any{1, "x"}}))
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xdf, 0x00, 0x0f, 0xff, 0xff, 0xc0})
	f.Add(bytes.Repeat([]byte{0x91}, 1000))
	n := &Node{name: "fuzz"}
	n.types.Store(newTypeTable())
	require.NoError(f, n.Register("fuzz", fuzzTarget{}))
	f.Fuzz(func(t *testing.T, payload []byte) {
		d := newDecoder()
		v, err := d.value(n, "fuzz", payload)
		if err != nil {
			if !errors.Is(err, ErrBadMessage) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		e := n.encs.get()
		e.begin(kindCast)
		info, err := n.typeOf(v)
		require.NoError(t, err)
		if err := e.value(info, v); err != nil {
			return // a few values, such as time zones, decode but do not encode
		}
		again, err := d.value(n, "fuzz", e.b[frameHeader:])
		if err != nil {
			t.Fatalf("%+v encodes to what does not decode: %v", v, err)
		}
		if !reflect.DeepEqual(v, again) {
			t.Skip() // NaN, and integers that any takes in another width
		}
	})
}

func TestCheckPayload(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		ok   bool
	}{
		{"nothing", nil, false},
		{"nil", []byte{0xc0}, true},
		{"two values", []byte{0xc0, 0xc0}, false},
		{"unused code", []byte{0xc1}, false},
		{"fixstr", []byte{0xa2, 'a', 'b'}, true},
		{"short fixstr", []byte{0xa3, 'a', 'b'}, false},
		{"str 8", []byte{0xd9, 1, 'a'}, true},
		{"str 16 short", []byte{0xda, 1}, false},
		{"bin 32", []byte{0xc6, 0, 0, 0, 1, 9}, true},
		{"ext 8", []byte{0xc7, 1, 5, 9}, true},
		{"fixext 1", []byte{0xd4, 5, 9}, true},
		{"fixext 16 short", []byte{0xd8, 5, 9}, false},
		{"float 32", []byte{0xca, 1, 2, 3, 4}, true},
		{"float 64 short", []byte{0xcb, 1, 2, 3, 4}, false},
		{"uint 16", []byte{0xcd, 1, 2}, true},
		{"int 64", []byte{0xd3, 1, 2, 3, 4, 5, 6, 7, 8}, true},
		{"array", []byte{0x92, 1, 2}, true},
		{"array 16", []byte{0xdc, 0, 1, 7}, true},
		{"array of 4 G", []byte{0xdd, 0xff, 0xff, 0xff, 0xff, 1}, false},
		{"map", []byte{0x81, 1, 2}, true},
		{"map 16", []byte{0xde, 0, 1, 1, 2}, true},
		{"map 32 short", []byte{0xdf, 0, 0, 0, 9, 1, 2}, false},
		{"deep", append(bytes.Repeat([]byte{0x91}, maxDepth), 1), true},
		{"too deep", append(bytes.Repeat([]byte{0x91}, maxDepth+1), 1), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.ok, checkPayload(c.b) == nil)
		})
	}
}
