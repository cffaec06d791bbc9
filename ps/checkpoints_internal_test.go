package ps

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A server that has taken cuts in several rounds, because shards moved meanwhile, writes
// all of them at once: it writes once.
func TestPartsOfOneServerAreOne(t *testing.T) {
	parts := []part{{server: "a", shards: []uint32{1}}, {server: "b", shards: []uint32{2}}, {server: "a", shards: []uint32{3, 0}}}
	require.Equal(t, []part{{server: "a", shards: []uint32{1, 3, 0}}, {server: "b", shards: []uint32{2}}}, byServer(parts))
}
