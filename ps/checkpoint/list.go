package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// ascending is a list of numbers that ascend from 0 or more.
type ascending []int

// UnmarshalJSON implements json.Unmarshaler. It stops at the first number that does not ascend, so
// that a long list of nothing takes no memory.
func (a *ascending) UnmarshalJSON(src []byte) error {
	last := -1
	list, err := decodeList(src, math.MaxInt32, func(n *int) error {
		if *n <= last {
			return fmt.Errorf("%d after %d, must ascend", *n, last)
		}
		last = *n
		return nil
	})
	*a = append(ascending{}, list...)
	return err
}

// counts is a list of one number per block of a sparse shard or less. The header says more than
// 200 bytes about each such block, which bounds the list.
type counts []int

// UnmarshalJSON implements json.Unmarshaler. It stops at the first number too many.
func (c *counts) UnmarshalJSON(src []byte) error {
	list, err := decodeList(src, MaxHeaderBytes/200, func(*int) error { return nil })
	*c = list
	return err
}

// decodeList reads a JSON array of at most limit values, each of which check accepts before
// the next one is read.
func decodeList[T any](src []byte, limit int, check func(*T) error) ([]T, error) {
	d := json.NewDecoder(bytes.NewReader(src))
	d.DisallowUnknownFields()
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, fmt.Errorf("not an array (%v)", err)
	}
	var list []T
	for d.More() {
		if len(list) == limit {
			return nil, fmt.Errorf("more than %d", limit)
		}
		var v T
		err := d.Decode(&v)
		if err == nil {
			err = check(&v)
		}
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", len(list), err)
		}
		if len(list) == cap(list) {
			list = slices.Grow(list, len(list)+1) // twice as long: append grows long lists in many steps
		}
		list = append(list, v)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("more than an array")
	}
	return list, nil
}
