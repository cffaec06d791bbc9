package shard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// success has the event of each effect that was performed.
// FuzzStep feeds any events in any order: on error nothing changes, and no
// server is told to serve before the store says so.
func FuzzStep(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{1, 2, 3, 4, 16, 14, 3, 9, 10, 11, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		m, effects, err := shard.Begin(shard.Record{Assignment: shard.Assignment{Shard: 1, Epoch: 3, Owner: "a"}}, "b")
		require.NoError(t, err)
		store := &shard.Record{Assignment: shard.Assignment{Shard: 1, Epoch: 3, Owner: "a"}}
		current := effects[0]
		for _, b := range data {
			ev := shard.Event{Kind: shard.EventKind(b % 24)}
			if ev.Kind == current.Kind.Success() && current.Record != nil {
				store = current.Record
			}
			if ev.Kind == shard.EventRecord {
				ev.Record = store
			}
			next, effects, err := m.Step(ev)
			if err != nil {
				require.Equal(t, m, next)
				require.Empty(t, effects)
				continue
			}
			m = next
			for _, e := range effects {
				current = e
				checkOrder(t, e, *store)
			}
		}
	})
}

func checkOrder(t *testing.T, e shard.Effect, store shard.Record) {
	t.Helper()
	phase := shard.PendingPhase(0)
	if store.Pending != nil {
		phase = store.Pending.Phase
	}
	switch e.Kind {
	case shard.EffectThaw:
		require.Equal(t, shard.PendingAborting, phase)
	case shard.EffectActivate, shard.EffectRelease:
		require.Equal(t, shard.PendingCommitted, phase)
	case shard.EffectRestore:
		require.Equal(t, shard.PendingRestoring, phase)
	case shard.EffectFreeze, shard.EffectFollow, shard.EffectPrepare:
		require.Equal(t, shard.PendingMoving, phase)
	}
	if e.Record != nil {
		require.NoError(t, e.Record.Validate())
	}
}

// TestStepTable walks every phase with every event: what is not in the table
// is refused, changes nothing and names itself.
func TestStepTable(t *testing.T) {
	begin, _, err := shard.Begin(shard.Record{Assignment: shard.Assignment{Shard: 1, Epoch: 3, Owner: "a"}}, "b")
	require.NoError(t, err)
	seen := map[shard.Migration]bool{begin: true}
	record := &shard.Record{Assignment: shard.Assignment{Shard: 1, Epoch: 3, Owner: "a"}}
	for queue := []shard.Migration{begin}; len(queue) > 0; queue = queue[1:] {
		m := queue[0]
		for kind := shard.EventKind(0); kind <= shard.EventAbort+1; kind++ {
			next, effects, err := m.Step(shard.Event{Kind: kind, Record: record})
			if err != nil {
				require.Equal(t, m, next)
				require.Nil(t, effects)
				require.True(t, strings.HasPrefix(err.Error(), "shard: "), err)
				continue
			}
			require.LessOrEqual(t, len(effects), 1)
			require.Equal(t, next.Done(), next.Outcome != 0)
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
			}
		}
		if m.Done() {
			_, _, err := m.Step(shard.Event{Kind: shard.EventTimeout})
			require.ErrorIs(t, err, shard.ErrUnexpectedEvent)
		}
	}
	require.Less(t, len(seen), 2000)
	t.Log(len(seen), "states")
}

func TestBeginRefused(t *testing.T) {
	for _, c := range []struct {
		a      shard.Assignment
		to     shard.ServerID
		reason shard.Refusal
	}{
		{shard.Assignment{Shard: 1, Epoch: 1, Owner: "a"}, "a", shard.SameServer},
		{shard.Assignment{Shard: 1, Epoch: 1, Owner: "a"}, "", shard.UnknownServer},
		{shard.Assignment{Shard: 1, Epoch: 1, Owner: "a"}, shard.ServerID(strings.Repeat("x", 256)), shard.UnknownServer},
		{shard.Assignment{Shard: 1}, "a", shard.Unplaced},
	} {
		_, _, err := shard.Begin(shard.Record{Assignment: c.a}, c.to)
		var refused *shard.MoveError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, c.reason, refused.Reason)
		require.ErrorIs(t, err, shard.ErrMoveRefused)
	}
	_, _, err := shard.Begin(shard.Record{Assignment: shard.Assignment{Epoch: ^shard.Epoch(0), Owner: "a"}}, "b")
	require.ErrorIs(t, err, shard.ErrRecord)
}

func TestResumeRefusesContradiction(t *testing.T) {
	p := shard.Pending{Shard: 1, From: "a", To: "b", Epoch: 3, Attempt: 1, Phase: shard.PendingCommitted}
	_, _, err := shard.Resume(shard.Record{Assignment: shard.Assignment{Shard: 1, Epoch: 3, Owner: "a", Attempt: 1}, Pending: &p})
	require.ErrorIs(t, err, shard.ErrRecord)
	_, _, err = shard.Resume(shard.Record{Pending: &shard.Pending{}})
	require.ErrorIs(t, err, shard.ErrRecord)
}

func TestRecordRoundTrip(t *testing.T) {
	r := shard.Record{
		Assignment: shard.Assignment{Shard: 1, Epoch: 4, Owner: "b", Attempt: 2},
		Pending:    &shard.Pending{Shard: 1, From: "a", To: "b", Epoch: 3, Attempt: 2, Phase: shard.PendingCommitted, Reason: "x"},
	}
	data, err := r.Encode()
	require.NoError(t, err)
	got, err := shard.DecodeRecord(data)
	require.NoError(t, err)
	require.True(t, r.Equal(got))
	for _, bad := range []string{"", "{", "[]", `{"assignment":{"Epoch":-1}}`, `{"assignment":{"Owner":"a"}}`, strings.Repeat(" ", shard.MaxRecordBytes+1)} {
		_, err := shard.DecodeRecord([]byte(bad))
		require.ErrorIs(t, err, shard.ErrRecord, fmt.Sprintf("%.20q", bad))
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"assignment":{"Shard":1,"Epoch":1,"Owner":"a","Attempt":0}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := shard.DecodeRecord(data)
		if err != nil {
			require.ErrorIs(t, err, shard.ErrRecord)
			return
		}
		again, err := r.Encode()
		require.NoError(t, err)
		got, err := shard.DecodeRecord(again)
		require.NoError(t, err)
		require.True(t, r.Equal(got))
	})
}
