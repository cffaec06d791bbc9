package main

import (
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// readAll reads a source in batches of n.
func readAll(s source, n int) (all []sample, err error) {
	for {
		batch := make([]sample, n)
		k, err := s.next(batch)
		if err != nil || k == 0 {
			return all, err
		}
		all = append(all, batch[:k]...)
	}
}

func TestLines(t *testing.T) {
	text := line(1, "7") + "\n" + line(1, "8") + "\r\n" + line(1, "9")
	for _, n := range []int{1, 2, 3, 100} {
		all, err := readAll(newLines("f", strings.NewReader(text), math.MaxInt64, false), n)
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, []int64{7, 8, 9}, []int64{all[0].integers[0], all[1].integers[0], all[2].integers[0]})
		require.True(t, math.IsNaN(all[0].best))
	}
	all, err := readAll(newLines("f", strings.NewReader(text), 2, false), 100)
	require.NoError(t, err)
	require.Len(t, all, 2)
	all, err = readAll(newLines("f", strings.NewReader(""), 2, false), 100)
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestLinesBad(t *testing.T) {
	text := line(1, "7") + "\n" + line(2, "x") + "\nno line\n\n" + line(1, "9") + "\n"
	_, err := readAll(newLines("day_0", strings.NewReader(text), math.MaxInt64, false), 100)
	require.EqualError(t, err, `ctr: day_0: line 2: field I2 is "x", want an integer of 64 bits or nothing`)
	for _, n := range []int{1, 2, 100} {
		l := newLines("day_0", strings.NewReader(text), math.MaxInt64, true)
		all, err := readAll(l, n)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.EqualValues(t, 9, all[1].integers[0])
		require.EqualValues(t, 3, l.skipped())
	}
	long := line(1, "7") + "\n" + strings.Repeat("x", maxLineBytes+1)
	_, err = readAll(newLines("f", strings.NewReader(long), math.MaxInt64, true), 1)
	require.EqualError(t, err, "ctr: f: line 2: more than 65536 bytes")
	gone := errors.New("gone")
	_, err = readAll(newLines("f", io.MultiReader(strings.NewReader(text), iotest.ErrReader(gone)), math.MaxInt64, true), 4)
	require.ErrorIs(t, err, gone)
	require.ErrorContains(t, err, "ctr: f: line 6: ")
}

// TestSourcesAreShared reads with several goroutines: each line goes to one of them.
func TestSourcesAreShared(t *testing.T) {
	var text strings.Builder
	want := map[int64]int{}
	for i := range 1000 {
		r := record{}
		r.integers[0] = int64(i)
		text.WriteString(format(r) + "\n")
		want[int64(i)] = 1
	}
	l := newLines("f", strings.NewReader(text.String()), math.MaxInt64, false)
	got := map[int64]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			samples, err := readAll(l, 7)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			for _, s := range samples {
				got[s.integers[0]]++
			}
		})
	}
	all.Wait()
	require.Equal(t, want, got)
}

func TestPlanted(t *testing.T) {
	const n = 4000
	all, err := readAll(&planted{seed: 3, total: n}, 512)
	require.NoError(t, err)
	require.Len(t, all, n)
	again, err := readAll(&planted{seed: 3, total: n}, 7)
	require.NoError(t, err)
	require.Equal(t, all, again, "the log does not depend on the batches")
	other, err := readAll(&planted{seed: 4, total: n}, 512)
	require.NoError(t, err)
	require.NotEqual(t, all, other)

	var clicks, best, variance, logits, squares float64
	for _, s := range all {
		if s.click {
			clicks++
		}
		best += s.best
		variance += s.best * (1 - s.best)
		logit := math.Log(s.best / (1 - s.best))
		logits += logit
		squares += logit * logit
		r, err := parseLine([]byte(format(s.record)))
		require.NoError(t, err)
		require.Equal(t, s.record.missing, r.missing)
	}
	require.InDelta(t, best, clicks, 5*math.Sqrt(variance), "clicks come up as often as the probabilities say")
	deviation := math.Sqrt(squares/n - logits*logits/n/n)
	require.InDelta(t, 1.3, deviation, 0.3, "of the logits, as the constants promise")
	require.InDelta(t, 0.25, best/n, 0.1)
}

func TestNormal(t *testing.T) {
	const n = 40_000
	p := &planted{seed: 9}
	var sum, squares, next float64
	for i := range int64(n) {
		x := p.normal(i, 0)
		sum += x
		squares += x * x
		next += x * p.normal(i, 1)
	}
	require.InDelta(t, 0, sum/n, 5/math.Sqrt(n))
	require.InDelta(t, 1, squares/n, 0.05)
	require.InDelta(t, 0, next/n, 5/math.Sqrt(n), "elements are independent")
}
