package wire

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func sample() Header {
	return Header{
		Kind: Push, Code: 3, Flags: 7, Shard: 5, Request: 1 << 40, Epoch: 9, Incarnation: 77, Seq: 1000, Floor: 990,
		Clock: 12, Count: 4, Offset: 1 << 33, Length: 16, PayloadSum: 42,
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	in := sample()
	var b [HeaderBytes]byte
	in.Encode(b[:])
	var out Header
	require.NoError(t, out.Decode(b[:]))
	require.Equal(t, in, out)
}

// Every single flipped bit of a header is noticed.
func TestHeaderBitFlips(t *testing.T) {
	in := sample()
	var b [HeaderBytes]byte
	in.Encode(b[:])
	for bit := range 8 * HeaderBytes {
		b[bit/8] ^= 1 << (bit % 8)
		var out Header
		require.Error(t, out.Decode(b[:]), "bit %d", bit)
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func TestHeaderRefusals(t *testing.T) {
	reseal := func(b []byte) {
		binary.LittleEndian.PutUint32(b[76:], Sum(b[:76]))
	}
	tests := []struct {
		name   string
		change func(b []byte)
		want   error
	}{
		{"magic", func(b []byte) { b[0] = 0; reseal(b) }, ErrMagic},
		{"version", func(b []byte) { b[2] = 9; reseal(b) }, ErrVersion},
		{"kind zero", func(b []byte) { b[3] = 0; reseal(b) }, ErrKind},
		{"kind unknown", func(b []byte) { b[3] = 200; reseal(b) }, ErrKind},
		{"too large", func(b []byte) { binary.LittleEndian.PutUint32(b[12:], MaxPayload+1); reseal(b) }, ErrTooLarge},
		{"checksum", func(b []byte) { b[20]++ }, ErrChecksum},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := sample()
			var b [HeaderBytes]byte
			h.Encode(b[:])
			tt.change(b[:])
			require.ErrorIs(t, h.Decode(b[:]), tt.want)
		})
	}
}

func TestPayloadChecksum(t *testing.T) {
	x := []float32{1, -2, float32(math.Inf(1)), 0}
	h := Header{Kind: Push, Length: 16, PayloadSum: Sum(Bytes(x))}
	require.NoError(t, h.CheckPayload(Bytes(x[:1]), Bytes(x[1:])))
	x[2] = 0
	require.ErrorIs(t, h.CheckPayload(Bytes(x)), ErrChecksum)
	require.Zero(t, Sum(), "no payload has the sum that an empty header field has")
	require.Nil(t, Bytes[float32](nil))
}

func TestHeaderDoesNotAllocate(t *testing.T) {
	h := sample()
	var b [HeaderBytes]byte
	require.Zero(t, testing.AllocsPerRun(100, func() {
		h.Encode(b[:])
		if h.Decode(b[:]) != nil {
			t.Error("decode failed")
		}
	}))
}

func FuzzDecode(f *testing.F) {
	h := sample()
	var b [HeaderBytes]byte
	h.Encode(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < HeaderBytes {
			return
		}
		binary.LittleEndian.PutUint32(in[76:], Sum(in[:76]))
		var h Header
		if h.Decode(in) != nil {
			return
		}
		if h.Length > MaxPayload || h.Kind == 0 || h.Kind >= kindEnd {
			t.Fatalf("accepted %+v", h)
		}
		var out [HeaderBytes]byte
		h.Encode(out[:])
		var again Header
		if err := again.Decode(out[:]); err != nil || again != h {
			t.Fatalf("round trip of %+v gave %+v, %v", h, again, err)
		}
	})
}
