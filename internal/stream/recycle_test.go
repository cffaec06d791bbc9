package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A burst's buffer does not stay for ever on a connection that has gone quiet, and
// is not dropped while it is in use.
func TestRecycle(t *testing.T) {
	for _, tc := range []struct {
		name       string
		capacity   int
		used       func(batch int) int
		keepsAfter bool
	}{
		{"small buffer, little used", keepBytes, func(int) int { return 1 }, true},
		{"large buffer, much used", 1 << 20, func(int) int { return 1 << 19 }, true},
		{"large buffer, now and then", 1 << 20, func(i int) int {
			if i%roomyBatches == 0 {
				return 1 << 19
			}
			return 1
		}, true},
		{"large buffer, little used", 1 << 20, func(int) int { return 1 << 17 }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, batch, kept := &Conn{}, make([]byte, 0, tc.capacity), true
			for i := range 3 * roomyBatches {
				c.spare = nil
				c.recycle(batch[:tc.used(i)])
				kept = kept && c.spare != nil
				require.Empty(t, c.spare)
			}
			require.Equal(t, tc.keepsAfter, kept)
		})
	}
}
