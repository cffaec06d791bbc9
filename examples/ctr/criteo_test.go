package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// format is the inverse of parseLine.
func format(r record) string {
	fields := []string{"0"}
	if r.click {
		fields[0] = "1"
	}
	for i := range numFields {
		text := ""
		switch {
		case r.missing>>i&1 == 1:
		case i < numIntegers:
			text = strconv.FormatInt(r.integers[i], 10)
		default:
			text = fmt.Sprintf("%08x", r.categories[i-numIntegers])
		}
		fields = append(fields, text)
	}
	return strings.Join(fields, "\t")
}

// line is a good one, with one field replaced; field 0 is the label.
func line(field int, text string) string {
	fields := []string{"1"}
	for i := range numIntegers {
		fields = append(fields, strconv.Itoa(i-2))
	}
	for i := range numCategories {
		fields = append(fields, fmt.Sprintf("%08x", i*0x01010101))
	}
	fields[field] = text
	return strings.Join(fields, "\t")
}

func TestParseLine(t *testing.T) {
	r, err := parseLine([]byte(line(3, "")))
	require.NoError(t, err)
	require.True(t, r.click)
	require.Equal(t, uint64(1)<<2, r.missing)
	require.Equal(t, [numIntegers]int64{-2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, r.integers)
	require.Equal(t, uint32(0x19191919), r.categories[25])

	r, err = parseLine([]byte("0" + strings.Repeat("\t", numFields)))
	require.NoError(t, err)
	require.Equal(t, record{missing: 1<<numFields - 1}, r)

	r, err = parseLine([]byte(line(39, "ABC")))
	require.NoError(t, err, "capitals and fewer digits are the same number")
	require.Equal(t, uint32(0xabc), r.categories[25])
}

func TestParseLineBad(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 `field line is "", want 40 fields between tabs, not 1`,
		"1\t2":                             `field line is "1\t2", want 40 fields between tabs, not 2`,
		line(39, "a\tb"):                   `want 40 fields between tabs, not 41`,
		line(0, ""):                        `field label is "", want 0 or 1`,
		line(0, "2"):                       `field label is "2", want 0 or 1`,
		line(0, "01"):                      `field label is "01", want 0 or 1`,
		line(1, "x"):                       `field I1 is "x", want an integer of 64 bits or nothing`,
		line(13, "1.5"):                    `field I13 is "1.5"`,
		line(2, " 1"):                      `field I2 is " 1"`,
		line(3, "9223372036854775808"):     `field I3 is "9223372036854775808"`,
		line(14, "g"):                      `field C1 is "g", want 1 to 8 hex digits or nothing`,
		line(39, "123456789"):              `field C26 is "123456789"`,
		line(20, "-1"):                     `field C7 is "-1"`,
		line(20, strings.Repeat("z", 999)): `field C7 is "` + strings.Repeat("z", shownBytes) + `", want`,
	} {
		_, err := parseLine([]byte(text))
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*fieldError))
	}
}

// FuzzParseLine holds that a line is refused, or means the same after it was written again.
func FuzzParseLine(f *testing.F) {
	f.Add([]byte(line(1, "")))
	f.Add([]byte(line(0, "x")))
	f.Add([]byte(line(5, "-9223372036854775808")))
	f.Add([]byte(strings.Repeat("\t", numFields)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseLine(text)
		if err != nil {
			require.ErrorAs(t, err, new(*fieldError))
			require.Less(t, len(err.Error()), 8*shownBytes)
			return
		}
		again, err := parseLine([]byte(format(r)))
		require.NoError(t, err)
		require.Equal(t, r, again)
		var ids, same [numFields]int64
		r.features(&ids)
		again.features(&same)
		require.Equal(t, ids, same)
	})
}

func TestFeatures(t *testing.T) {
	// Every field of these differs in its value, and the fields among each other.
	seen := map[int64]bool{}
	all, none := record{}, record{missing: 1<<numFields - 1}
	top := record{}
	for i := range top.integers {
		top.integers[i] = math.MaxInt64
	}
	for i := range top.categories {
		top.categories[i] = math.MaxUint32
	}
	for _, r := range []record{all, none, top} {
		var ids [numFields]int64
		r.features(&ids)
		for _, id := range ids {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
}

func TestBucket(t *testing.T) {
	for v, want := range map[int64]int64{
		math.MinInt64: 0, -1: 0, 0: 1, 1: 2, 2: 3, 3: 5, 7: 7, 8: 8, 100: 25, 101: 25, math.MaxInt64: 4 + 1906,
	} {
		require.Equal(t, want, bucket(v), "bucket of %d", v)
	}
}
