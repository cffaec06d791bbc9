package codec

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// sealed is a body with its digest: damage that a digest does not find.
func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(body[:len(body):len(body)], sum[:]...)
}

// one is a body of tensors with one element each.
func one(count uint32, x float32, names ...string) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(le.AppendUint32([]byte(savedMagic), savedVersion), count)
	for _, name := range names {
		b = append(le.AppendUint16(b, uint16(len(name))), name...)
		b = le.AppendUint64(le.AppendUint64(b, 0), 1)
		b = le.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func TestLoadRefusesWhatIsSealed(t *testing.T) {
	var f Feedback
	require.NoError(t, f.Load(sealed(one(2, 1, "a", "b"))))
	huge := one(1, 1, "a")
	binary.LittleEndian.PutUint64(huge[len(huge)-12:], 1<<62)
	for name, body := range map[string][]byte{
		"order":        one(2, 1, "b", "a"),
		"twice":        one(2, 1, "a", "a"),
		"no name":      one(1, 1, ""),
		"long name":    one(1, 1, string(make([]byte, MaxNameBytes+1))),
		"too few":      one(3, 1, "a", "b"),
		"too many":     one(1, 1, "a", "b"),
		"not a number": one(1, float32(math.NaN()), "a"),
		"infinity":     one(1, float32(math.Inf(-1)), "a"),
		"elements":     huge,
		"count":        one(math.MaxUint32, 1, "a"),
	} {
		require.ErrorIs(t, f.Load(sealed(body)), ErrCorrupt, name)
	}
	require.Len(t, f.Tensors(), 2)
}

// FuzzLoad seals what the fuzzer makes, so that it comes past the digest; what is taken is
// written again as it was.
func FuzzLoad(f *testing.F) {
	f.Add(one(0, 0))
	f.Add(one(2, 1, "a", "b"))
	f.Add(one(2, float32(math.NaN()), "b", "a"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var x Feedback
		if err := x.Load(sealed(body)); err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.Equal(t, sealed(body), x.Save())
	})
}
