package table_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/table"
)

// The counters of T25: what was counted before a copy counts after it.
func TestT25Counters(t *testing.T) {
	for _, filterBytes := range []int64{0, 1 << 12} {
		c := table.Config{
			Name: "x", Rows: 1000, Dim: 2, End: 2000, Rule: sgdRule(), ExpireAfter: 10,
			Admit: table.Admission{Touches: 3, FilterBytes: filterBytes},
		}
		tab := newTable(t, c)
		ids, g := []int64{-5}, []float32{1, 2}
		for range 2 {
			require.Equal(t, table.Result{Waiting: 1}, tab.Push(ids, g, 100))
			require.False(t, tab.Has(-5))
		}
		tab = copyOf(t, tab, c, 10)
		require.Equal(t, table.Result{Applied: 1}, tab.Push(ids, g, 105))
		got := make([]float32, 2)
		tab.Pull(ids, got)
		require.Equal(t, []float32{-1, -2}, got)
		tab = copyOf(t, tab, c, 10)
		require.Zero(t, tab.Expire(0, 114), "9 after its touch")
		require.Equal(t, 1, tab.Expire(0, 115))
		require.False(t, tab.Has(-5))
		require.Equal(t, filterBytes == 0, len(tab.AppendWaiting(0, nil)) == 0, "exact counters go with the row")
	}
}

// A filter forgets: what was counted long ago counts half.
func TestFilterAges(t *testing.T) {
	c := table.Config{
		Name: "x", Rows: 1000, Dim: 1, Rule: sgdRule(), ExpireAfter: 10,
		Admit: table.Admission{Touches: 4, FilterBytes: 1 << 10},
	}
	tab := newTable(t, c)
	push := func(now uint32) table.Result { return tab.Push([]int64{7}, []float32{1}, now) }
	push(1)
	push(2)
	tab.Expire(0, 10)
	require.Equal(t, 1, push(10).Waiting, "3 of 4")
	tab.Expire(0, 11) // 1
	require.Equal(t, 1, push(11).Waiting)
	require.Equal(t, 1, push(11).Waiting)
	require.Equal(t, 1, push(11).Applied)
}

func TestHostileCounters(t *testing.T) {
	c := table.Config{Name: "x", Rows: 1 << 17, Dim: 1, Rule: sgdRule(), Admit: table.Admission{Touches: 3}}
	tab := newTable(t, c)
	var here, elsewhere int64
	for tab.BlockOf(here) != 0 {
		here++
	}
	for tab.BlockOf(elsewhere) != 1 {
		elsewhere++
	}
	counter := func(id int64, count uint32) []byte {
		b := binary.LittleEndian.AppendUint64(nil, uint64(id))
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, count), 9)
	}
	good := counter(here, 2)
	require.NoError(t, tab.SetWaiting(0, good))
	for want, src := range map[string][]byte{
		"a multiple of 16":      good[:15],
		"of another block":      counter(elsewhere, 1),
		"two counters":          append(slices.Clone(good), good...),
		"count 0":               counter(here, 0),
		"count 2147483648 of":   counter(here, 1<<31),
		"count 4294967295 of":   counter(here, 1<<32-1),
		"must be a multiple of": bytes.Repeat([]byte{1}, 33),
	} {
		require.ErrorContains(t, tab.SetWaiting(0, src), want)
		require.Equal(t, good, tab.AppendWaiting(0, nil))
	}
	tab.Push([]int64{here}, []float32{1}, 9)
	require.ErrorContains(t, tab.SetWaiting(0, good), "which has a row")
	require.NoError(t, tab.SetWaiting(0, nil))
	c.Admit.FilterBytes = 256
	require.ErrorContains(t, newTable(t, c).SetWaiting(0, good), "filter of 12 bytes, must be 128")
	c.Admit = table.Admission{}
	require.ErrorContains(t, newTable(t, c).SetWaiting(0, good), "admits at once")
}
