package zkstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/stretchr/testify/require"
)

// TestJournalForgets records more than the journal holds: it says how far back
// it goes, in whole revisions, and what it says of later ones is complete.
func TestJournalForgets(t *testing.T) {
	for name, key := range map[string]string{"many": "k", "long": strings.Repeat("k", store.MaxKeyBytes-4)} {
		t.Run(name, func(t *testing.T) {
			j := &journal{}
			all := map[store.Revision][]string{}
			for i := range 500 {
				rev := j.next()
				for n := range 1 + i%3 {
					all[rev] = append(all[rev], fmt.Sprintf("%s%d%d", key, i%10, n))
					j.record(store.Put, all[rev][n])
				}
				data := j.encode()
				require.Less(t, len(data), maxJournalBytes+100)
				var err error
				j, err = decodeJournal(data)
				require.NoError(t, err)
				require.Equal(t, rev, j.revision)
				require.LessOrEqual(t, len(j.steps), maxJournalSteps)
				held := map[store.Revision][]string{}
				for _, st := range j.steps {
					require.Greater(t, st.revision, j.floor)
					held[st.revision] = append(held[st.revision], st.key)
				}
				for back := j.floor + 1; back <= rev; back++ {
					require.Equal(t, all[back], held[back])
				}
			}
			require.Positive(t, j.floor)
			_, whole := j.since(j.floor-1, "")
			require.False(t, whole)
			list, whole := j.since(j.floor, key+"9")
			require.True(t, whole)
			latest := map[string]store.Revision{}
			for _, st := range j.steps {
				if strings.HasPrefix(st.key, key+"9") {
					latest[st.key] = st.revision
				}
			}
			require.NotEmpty(t, latest)
			require.Len(t, list, len(latest))
			for _, st := range list {
				require.Equal(t, latest[st.key], st.revision, "the last change of each key")
			}
		})
	}
}

// TestJournalOfOneBigChange records one change that is larger than the journal.
func TestJournalOfOneBigChange(t *testing.T) {
	j := &journal{}
	rev := j.next()
	for i := range maxJournalSteps + 1 {
		j.record(store.Delete, fmt.Sprint(i))
	}
	j, err := decodeJournal(j.encode())
	require.NoError(t, err)
	require.Equal(t, &journal{revision: rev, floor: rev}, j)
}

func FuzzJournal(f *testing.F) {
	j := &journal{}
	for i := range 5 {
		j.next()
		j.record(store.Put+store.EventKind(i%2), fmt.Sprint("key/", i))
	}
	f.Add(j.encode()[4:])
	f.Add((&journal{}).encode()[4:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, rest []byte) {
		j, err := decodeJournal(seal(journalNode, rest))
		if err != nil {
			return
		}
		again, err := decodeJournal(j.encode())
		require.NoError(t, err)
		require.Equal(t, j, again)
	})
}

// FuzzNames makes names of keys and back, and keys of names and back.
func FuzzNames(f *testing.F) {
	for _, key := range []string{"shard/7", ".", "..", "a.b", "%2F", "\x00\xff", "é", " ", "zookeeper", "a+b&c"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if store.CheckKey(text) == nil {
			name := escape(text)
			require.NotContains(t, name, "/")
			require.NotContains(t, name, ".")
			require.LessOrEqual(t, len(name), 3*len(text))
			key, err := unescape(name)
			require.NoError(t, err)
			require.Equal(t, text, key)
		}
		if key, err := unescape(text); err == nil {
			require.Equal(t, text, escape(key))
		}
	})
}
