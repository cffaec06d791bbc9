package collective

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/internal/kernel"
)

func aHeader() header {
	return header{
		kind: frameAnnounce, epoch: 3, seq: 1 << 40, part: 7, length: maxFrame,
		call: Fingerprint{Collective: Reduce, Type: BFloat16, Op: Average, Algorithm: schedule.Chain, Root: 1000, Count: schedule.MaxCount},
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	h := aHeader()
	var raw [headerBytes]byte
	h.encode(&raw)
	var got header
	require.NoError(t, got.decode(raw[:]))
	require.Equal(t, h, got)
	for bit := range 8 * headerBytes {
		raw[bit/8] ^= 1 << (bit % 8)
		require.ErrorIs(t, got.decode(raw[:]), ErrRefused, "bit %d", bit)
		raw[bit/8] ^= 1 << (bit % 8)
	}
}

// Whatever arrives, a header that decodes is within its bounds.
func FuzzHeader(f *testing.F) {
	h := aHeader()
	var raw [headerBytes]byte
	h.encode(&raw)
	f.Add(raw[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		raw := make([]byte, headerBytes)
		copy(raw, b)
		binary.LittleEndian.PutUint32(raw[60:], kernel.CRC32C(0, raw[:60])) // else nothing gets beyond it
		var h header
		if err := h.decode(raw); err != nil {
			require.ErrorIs(t, err, ErrRefused)
			return
		}
		require.LessOrEqual(t, h.length, uint32(maxFrame))
		require.Less(t, h.kind, frameKindEnd)
		_ = h.call.String()
	})
}
