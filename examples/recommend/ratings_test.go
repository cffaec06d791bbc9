package main

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestParseLine(t *testing.T) {
	r, err := parseLine([]byte("196\t242\t3\t881250949"))
	require.NoError(t, err)
	require.Equal(t, rating{196, 242, 3}, r)
	r, err = parseLine([]byte("-9223372036854775808\t0\t-2.5\t0"))
	require.NoError(t, err, "any id is one")
	require.Equal(t, rating{math.MinInt64, 0, -2.5}, r)

	for text, want := range map[string]string{
		"":                             `field line is "", want 4 fields between tabs, not 1`,
		"1\t2\t3":                      `want 4 fields between tabs, not 3`,
		"1\t2\t3\t4\t5":                `want 4 fields between tabs, not 5`,
		"1 2 3 4":                      `want 4 fields between tabs, not 1`,
		"\t2\t3\t4":                    `field user is "", want an integer of 64 bits`,
		"1\tx\t3\t4":                   `field item is "x", want an integer of 64 bits`,
		"1\t9223372036854775808\t3\t4": `field item is "9223372036854775808"`,
		"1\t2\tNaN\t4":                 `field rating is "NaN", want a number from -1000 to 1000`,
		"1\t2\t1e3000\t4":              `field rating is "1e3000"`,
		"1\t2\t1001\t4":                `field rating is "1001"`,
		"1\t2\t\t4":                    `field rating is ""`,
		"1\t2\t3\t4.5":                 `field time is "4.5", want an integer of 64 bits`,
	} {
		_, err := parseLine([]byte(text))
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*fieldError))
	}
}

// FuzzParseLine holds that a line is refused with a short error, or has a finite rating.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte("196\t242\t3\t881250949"))
	f.Add([]byte("1\t2\tNaN\t4"))
	f.Add([]byte("1\t2\t0x1p-2\t4"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseLine(text)
		if err != nil {
			require.ErrorAs(t, err, new(*fieldError))
			require.Less(t, len(err.Error()), 8*shownBytes)
			return
		}
		require.LessOrEqual(t, math.Abs(float64(r.value)), float64(maxRating))
	})
}

func TestReadRatings(t *testing.T) {
	all, err := readRatings("u.data", strings.NewReader("1\t2\t3\t4\n5\t6\t1.5\t8"))
	require.NoError(t, err)
	require.Equal(t, []rating{{1, 2, 3}, {5, 6, 1.5}}, all)
	_, err = readRatings("u.data", strings.NewReader("1\t2\t3\t4\n5\tsix\t1.5\t8\n"))
	require.EqualError(t, err, `recommend: u.data: line 2: field item is "six", want an integer of 64 bits`)
	_, err = readRatings("u.data", strings.NewReader("1\t2\t3\t4\n"+strings.Repeat("1", 1<<20)))
	require.ErrorContains(t, err, "recommend: u.data: after 1 lines: ")
	gone := errors.New("gone")
	_, err = readRatings("u.data", io.MultiReader(strings.NewReader("1\t2\t3\t4\n"), iotest.ErrReader(gone)))
	require.ErrorIs(t, err, gone)
}

func TestPlant(t *testing.T) {
	const n = 50_000
	all, truth := plant(n, 300, 200, 1)
	again, _ := plant(n, 300, 200, 1)
	require.Equal(t, all, again)
	require.InDelta(t, plantedNoise, rmse(truth, all), 0.01, "the noise floor")
	mean := meanOf(all)
	// Two biases, and a product of factors: 0.16 + 0.16 + 0.64, and the noise.
	require.InDelta(t, math.Sqrt(2*plantedBias*plantedBias+plantedShare*plantedShare+plantedNoise*plantedNoise), rmse(constant(mean, n), all), 0.2)
	users, items := map[int64]int{}, map[int64]int{}
	for _, r := range all {
		users[r.user]++
		items[r.item]++
	}
	require.Len(t, users, 300)
	require.Len(t, items, 200)
	require.InDelta(t, n*math.Log(2)/math.Log(201), items[0], 1000, "the most popular item")
}

func TestSplit(t *testing.T) {
	all, truth := plant(20_000, 50, 50, 1)
	train, test, testTruth, err := split(all, truth, 0.1, 1)
	require.NoError(t, err)
	require.Len(t, all, len(train)+len(test))
	require.InDelta(t, 2000, len(test), 600)
	require.InDelta(t, plantedNoise, rmse(testTruth, test), 0.05, "truth is split alike")
	trained := map[[2]int64]bool{}
	for _, r := range train {
		trained[[2]int64{r.user, r.item}] = true
	}
	for _, r := range test {
		require.False(t, trained[[2]int64{r.user, r.item}], "user %d and item %d are on both sides", r.user, r.item)
	}
	_, other, _, err := split(all, nil, 0.1, 2)
	require.NoError(t, err)
	require.NotEqual(t, test, other)
	_, _, _, err = split(all[:1], nil, 0.1, 1)
	require.ErrorContains(t, err, "too few ratings")
}
