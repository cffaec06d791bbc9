package store_test

import (
	"testing"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/stretchr/testify/require"
)

// TestQueueReset gives a queue the state of the store, changes, and the state
// again: the receiver learns of each difference once, and of nothing else.
func TestQueueReset(t *testing.T) {
	entry := func(key, value string, rev store.Revision) store.Entry {
		return store.Entry{Key: key, Value: []byte(value), Revision: rev}
	}
	q := store.NewQueue()
	events := make(chan store.Event)
	closing, sent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		q.Send(t.Context(), closing, events)
	}()
	q.Reset([]store.Entry{entry("a", "1", 3), entry("b", "1", 1), entry("c", "1", 2)}, 3)
	require.Equal(t, store.Event{Kind: store.Put, Entry: entry("b", "1", 1)}, <-events)
	require.Equal(t, store.Event{Kind: store.Put, Entry: entry("c", "1", 2)}, <-events)
	require.Equal(t, store.Event{Kind: store.Put, Entry: entry("a", "1", 3)}, <-events)
	require.Equal(t, store.Event{Kind: store.Synced}, <-events)
	q.Add(store.Event{Kind: store.Delete, Entry: store.Entry{Key: "c", Revision: 4}})
	q.Add(store.Event{Kind: store.Put, Entry: entry("d", "1", 5)})
	require.Equal(t, store.Delete, (<-events).Kind)
	require.Equal(t, "d", (<-events).Entry.Key)
	q.Reset([]store.Entry{entry("d", "1", 5), entry("e", "1", 7), entry("a", "2", 6)}, 9)
	require.Equal(t, store.Event{Kind: store.Put, Entry: entry("a", "2", 6)}, <-events)
	require.Equal(t, store.Event{Kind: store.Put, Entry: entry("e", "1", 7)}, <-events)
	require.Equal(t, store.Event{Kind: store.Delete, Entry: store.Entry{Key: "b", Revision: 9}}, <-events)
	q.Reset([]store.Entry{entry("d", "1", 5), entry("e", "1", 7), entry("a", "2", 6)}, 9)
	q.Add(store.Event{Kind: store.Put, Entry: entry("z", "1", 10)})
	require.Equal(t, "z", (<-events).Entry.Key, "nothing is told twice")
	close(closing)
	<-sent
}
