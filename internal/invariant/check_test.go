package invariant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	require.NotPanics(t, func() { Check(true, "never seen") })
	broken := func() { Check(false, "I2 one writer: shard %d has %d owners", 3, 2) }
	if Enabled {
		require.PanicsWithValue(t, "invariant: I2 one writer: shard 3 has 2 owners", broken)
	} else {
		require.NotPanics(t, broken)
	}
}

// TestGuardedCheckCostsNothing holds the package to its promise: arguments behind
// the guard are not evaluated without the tag.
func TestGuardedCheckCostsNothing(t *testing.T) {
	evaluated := false
	costly := func() bool { evaluated = true; return true }
	if Enabled {
		Check(costly(), "never seen")
	}
	require.Equal(t, Enabled, evaluated)
}
