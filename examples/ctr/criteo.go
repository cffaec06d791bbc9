package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/elasticps/elasticps/shard"
)

// The fields of a line in Criteo's format, behind the label.
const (
	numIntegers   = 13
	numCategories = 26
	numFields     = numIntegers + numCategories
)

// record is one line of a click log: whether an advertisement was clicked, and 39 fields,
// of which any may be missing.
type record struct {
	click      bool
	integers   [numIntegers]int64
	categories [numCategories]uint32
	missing    uint64 // bit i says that field i is, integers first
}

// fieldError says what is wrong with one line.
type fieldError struct {
	field string // "label", "I1" to "I13", "C1" to "C26", or "line"
	text  string // as it is there, at most shownBytes of it
	want  string
}

// Error names the field, what is there and what should be.
func (e *fieldError) Error() string {
	return fmt.Sprintf("field %s is %q, want %s", e.field, e.text, e.want)
}

const shownBytes = 32

func badField(field string, text []byte, want string) error {
	return &fieldError{field: field, text: string(text[:min(len(text), shownBytes)]), want: want}
}

// parseLine reads a line of Criteo's log without its end: label, integers and categories
// between tabs, where a category is a 32-bit number in hex digits and an empty field is a
// missing one. The error is a *fieldError.
func parseLine(line []byte) (r record, err error) {
	if n := bytes.Count(line, []byte{'\t'}); n != numFields {
		return r, badField("line", line, fmt.Sprintf("%d fields between tabs, not %d", 1+numFields, 1+n))
	}
	label, rest, _ := bytes.Cut(line, []byte{'\t'})
	if len(label) != 1 || label[0] != '0' && label[0] != '1' {
		return r, badField("label", label, "0 or 1")
	}
	r.click = label[0] == '1'
	for i := range numFields {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{'\t'})
		if len(text) == 0 {
			r.missing |= 1 << i
			continue
		}
		if i < numIntegers {
			if r.integers[i], err = strconv.ParseInt(string(text), 10, 64); err != nil {
				return r, badField(fieldName(i), text, "an integer of 64 bits or nothing")
			}
			continue
		}
		c, err := strconv.ParseUint(string(text), 16, 32)
		if err != nil {
			return r, badField(fieldName(i), text, "1 to 8 hex digits or nothing")
		}
		r.categories[i-numIntegers] = uint32(c)
	}
	return r, nil
}

// fieldName is what Criteo's description of the log calls a field.
func fieldName(i int) string {
	if i < numIntegers {
		return fmt.Sprintf("I%d", i+1)
	}
	return fmt.Sprintf("C%d", i-numIntegers+1)
}

// features returns the row ids of the 39 features of a record: one for each field and
// value, the value that is missing included. It is a one-to-one mapping: two features
// never share a row, without anybody keeping a list of them.
func (r *record) features(ids *[numFields]int64) {
	for i := range ids {
		value := int64(0)
		switch {
		case r.missing>>i&1 == 1:
			value = 1 << 32 // none of the values below
		case i < numIntegers:
			value = bucket(r.integers[i])
		default:
			value = int64(r.categories[i-numIntegers])
		}
		ids[i] = int64(shard.Hash(int64(i)<<33 | value))
	}
}

// bucket puts integers together that are about equal: the square of the logarithm, rounded
// down (Juan et al., Field-aware Factorization Machines for CTR Prediction, RecSys 2016,
// whose winning program did it for this log). The smallest ones, of which there are most,
// stay apart, and all that are negative are one.
func bucket(v int64) int64 {
	switch {
	case v < 0:
		return 0
	case v <= 2:
		return 1 + v
	}
	l := math.Log(float64(v))
	return 4 + int64(l*l)
}
