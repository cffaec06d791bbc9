package device

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newSim(t *testing.T, c SimLinkConfig) *SimLink {
	t.Helper()
	s, err := NewSimLink(c)
	require.NoError(t, err)
	return s
}

func TestSimConfig(t *testing.T) {
	_, err := NewSimLink(SimLinkConfig{BytesPerSecond: math.NaN(), BurstBytes: -1, MemoryBytes: -5})
	require.ErrorContains(t, err, "BytesPerSecond NaN")
	require.ErrorContains(t, err, "BurstBytes -1: want >= 0")
	require.ErrorContains(t, err, "MemoryBytes -5")
	_, err = NewSimLink(SimLinkConfig{BytesPerSecond: 10, BurstBytes: 101})
	require.ErrorContains(t, err, "at most 10s's worth, 100")
	s := newSim(t, SimLinkConfig{})
	d := s.Device()
	d.Utilization = Figure[float64]{} // known as soon as time has passed
	require.Equal(t, Device{ID: "sim", Vendor: Simulated, Model: "link", Health: Healthy, LinkBytesPerSecond: Known(0.0)}, d)
	s = newSim(t, SimLinkConfig{Name: "a", MemoryBytes: 5, BytesPerSecond: 7})
	require.Equal(t, Known(int64(5)), s.Device().MemoryBytes)
	require.Equal(t, Known(7.0), s.Device().LinkBytesPerSecond)
}

func TestSimSharesTheLinkInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, SimLinkConfig{BytesPerSecond: 1e6})
		begin := time.Now()
		ends := make([]time.Duration, 4)
		var wg sync.WaitGroup
		for i := range ends {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond) // fixes the order of arrival
				if s.Use(t.Context(), 100e3) == nil {
					ends[i] = time.Since(begin)
				}
			})
		}
		wg.Wait()
		for i, end := range ends {
			require.Equal(t, time.Duration(i+1)*100*time.Millisecond, end)
		}
		require.InDelta(t, 1, s.Usage(400*time.Millisecond).Busy.Or(0), 0.001)
		time.Sleep(400 * time.Millisecond)
		require.InDelta(t, 0.5, s.Usage(800*time.Millisecond).Busy.Or(0), 0.02)
		u := s.Usage(800 * time.Millisecond)
		require.Equal(t, Known(int64(400e3)), u.TotalBytes)
		require.InDelta(t, 500e3, u.BytesPerSecond.Value, 10e3)
		require.Equal(t, s.Usage(time.Second).Busy, s.Device().Utilization)
		time.Sleep(time.Second)
		require.Zero(t, s.Usage(0).Busy.Or(0))
		require.Equal(t, HistoryWindow, func() time.Duration { time.Sleep(time.Minute); return s.Usage(time.Hour).Window }())
	})
}

func TestSimWithoutLimitNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := newSim(t, SimLinkConfig{}), time.Now()
		require.Equal(t, Usage{TotalBytes: Known(int64(0))}, s.Usage(time.Second), "nothing else is known at time zero")
		require.NoError(t, s.Use(t.Context(), math.MaxInt64/2))
		require.Equal(t, begin, time.Now())
		time.Sleep(time.Second)
		require.Zero(t, s.Usage(time.Second).Busy.Or(0))
	})
}

func TestSimContextEndsATransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, SimLinkConfig{Name: "slow", BytesPerSecond: 1000})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Use(ctx, 10_000)
		var use *UseError
		require.ErrorAs(t, err, &use)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, UseError{Device: "slow", Bytes: 10_000, Waited: time.Second, Err: context.DeadlineExceeded}, *use)
		begin := time.Now()
		require.NoError(t, s.Use(t.Context(), 500), "the link is free again")
		require.Equal(t, 500*time.Millisecond, time.Since(begin))
		require.True(t, errors.Is(s.Use(ctx, 1), context.DeadlineExceeded), "an ended context reserves nothing")
		require.EqualValues(t, 1500, s.Usage(0).TotalBytes.Value)
		require.ErrorIs(t, s.Use(t.Context(), -1), ErrNegativeBytes)
	})
}

func TestSimBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, SimLinkConfig{BytesPerSecond: 1e6, BurstBytes: 10e3})
		time.Sleep(time.Second)
		begin := time.Now()
		for range 10 {
			require.NoError(t, s.Use(t.Context(), 1000))
		}
		require.Equal(t, begin, time.Now(), "within the burst")
		require.NoError(t, s.Use(t.Context(), 1000))
		require.Equal(t, time.Millisecond, time.Since(begin))
	})
}

func TestSimUseAllocations(t *testing.T) {
	s := newSim(t, SimLinkConfig{BytesPerSecond: 1e12, BurstBytes: 1e12})
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.Use(ctx, 1) }))
}

func BenchmarkSimUse(b *testing.B) {
	s, err := NewSimLink(SimLinkConfig{BytesPerSecond: 1e15, BurstBytes: 1e15})
	require.NoError(b, err)
	for b.Loop() {
		_ = s.Use(b.Context(), 1)
	}
}
