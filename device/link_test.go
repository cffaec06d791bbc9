package device

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLinkTurns(t *testing.T) {
	const ms = time.Millisecond
	type use struct {
		at     time.Duration
		bytes  int64
		finish time.Duration
	}
	cases := []struct {
		name  string
		burst time.Duration
		rate  float64
		uses  []use
	}{
		{"one", 0, 1000, []use{{0, 100, 100 * ms}}},
		{"queue", 0, 1000, []use{{0, 100, 100 * ms}, {10 * ms, 50, 150 * ms}, {20 * ms, 1, 151 * ms}}},
		{"idle between", 0, 1000, []use{{0, 10, 10 * ms}, {time.Second, 10, 1010 * ms}}},
		{"no limit", 0, 0, []use{{5 * ms, 1 << 40, 5 * ms}, {6 * ms, 1, 6 * ms}}},
		{"burst", 50 * ms, 1000, []use{{100 * ms, 30, 80 * ms}, {100 * ms, 30, 110 * ms}, {100 * ms, 30, 140 * ms}}},
		{"longest", 0, 1, []use{{0, math.MaxInt64, maxTransfer}, {0, math.MaxInt64, 2 * maxTransfer}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := link{bytesPerSecond: c.rate, burst: c.burst}
			for i, u := range c.uses {
				require.Equal(t, u.finish, l.reserve(u.at, u.bytes).finish, "use %d", i)
			}
		})
	}
}

func TestLinkReleaseGivesBackOnlyTheLastTurn(t *testing.T) {
	l := link{bytesPerSecond: 1000}
	first, second := l.reserve(0, 100), l.reserve(0, 100)
	l.release(50*time.Millisecond, first)
	require.Equal(t, 200*time.Millisecond, l.lastFinish, "others queue behind the first")
	busy := l.busy(50 * time.Millisecond)
	l.release(50*time.Millisecond, second)
	require.Equal(t, 100*time.Millisecond, l.lastFinish)
	require.Equal(t, busy, l.busy(50*time.Millisecond), "what has passed stays")
	require.EqualValues(t, 100, l.totalBytes)
	third := l.reserve(90*time.Millisecond, 100)
	require.Equal(t, 200*time.Millisecond, third.finish)
	l.release(150*time.Millisecond, third)
	require.EqualValues(t, 150, l.totalBytes)
	require.Equal(t, 150*time.Millisecond, l.busy(time.Second))
	l.release(time.Second, third)
	require.EqualValues(t, 150, l.totalBytes, "a turn that is over gives nothing back")
}

func TestHistoryResolutionAndBound(t *testing.T) {
	var h history
	l := link{bytesPerSecond: 1e6}
	now := time.Duration(0)
	for i := range 200_000 { // half a millisecond busy of each, over 200 s
		now = time.Duration(i) * time.Millisecond
		h.record(checkpoint{at: now, busy: l.busy(now), bytes: l.totalBytes})
		l.reserve(now, 500)
	}
	now += time.Millisecond
	last := checkpoint{at: now, busy: l.busy(now), bytes: l.totalBytes}
	for _, w := range []time.Duration{100 * time.Millisecond, time.Second, HistoryWindow} {
		then := h.value(now-w, last)
		require.InDelta(t, 0.5, float64(last.busy-then.busy)/float64(w), 0.1*float64(100*time.Millisecond)/float64(w)+0.001, "%v", w)
		require.InDelta(t, 500e3, float64(last.bytes-then.bytes)/w.Seconds(), 20e3, "%v", w)
	}
}
