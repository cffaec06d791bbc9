package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
)

// sample is one record of a log.
type sample struct {
	record
	// best is the probability of a click as the planted model has it: nobody can know
	// more. NaN if nobody knows it.
	best float64
}

// source is a log that several workers read together.
type source interface {
	// next fills batch with the next samples and returns how many there are; none means
	// that there are no more.
	next(batch []sample) (int, error)
	// skipped is how many lines were passed over.
	skipped() int64
}

// maxLineBytes bounds a line of a log.
const maxLineBytes = 64 << 10

// lines is a log in Criteo's format.
type lines struct {
	name string // of the file
	skip bool   // lines that are malformed, instead of failing

	mu   sync.Mutex
	in   *bufio.Reader
	left int64 // lines to be read
	line int64 // number of the last one

	bad atomic.Int64
}

// newLines reads at most so many lines of in.
func newLines(name string, in io.Reader, most int64, skip bool) *lines {
	return &lines{name: name, skip: skip, in: bufio.NewReaderSize(in, maxLineBytes), left: most}
}

func (l *lines) skipped() int64 { return l.bad.Load() }

// next parses without holding others up: what it reads under the lock are whole lines.
func (l *lines) next(batch []sample) (n int, err error) {
	for n == 0 { // all lines of a batch may be malformed
		text, first, err := l.read(len(batch))
		if err != nil {
			return 0, err
		}
		if len(text) == 0 {
			return 0, nil
		}
		for i := int64(0); len(text) > 0; i++ {
			var line []byte
			line, text, _ = bytes.Cut(text, []byte{'\n'})
			r, err := parseLine(bytes.TrimSuffix(line, []byte{'\r'}))
			if err != nil && !l.skip {
				return 0, fmt.Errorf("ctr: %s: line %d: %w", l.name, first+i, err)
			}
			if err != nil {
				l.bad.Add(1)
				continue
			}
			batch[n] = sample{record: r, best: math.NaN()}
			n++
		}
	}
	return n, nil
}

// read returns up to n lines, each with its end, and the number of the first.
func (l *lines) read(n int) (text []byte, first int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.line + 1
	for range n {
		if l.left == 0 {
			break
		}
		line, err := l.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return nil, 0, fmt.Errorf("ctr: %s: line %d: more than %d bytes", l.name, l.line+1, maxLineBytes)
		case err != nil && !errors.Is(err, io.EOF):
			return nil, 0, fmt.Errorf("ctr: %s: line %d: %w", l.name, l.line+1, err)
		case len(line) == 0:
			l.left = 0
			continue
		}
		text = append(text, line...)
		if err != nil {
			text = append(text, '\n')
		}
		l.line++
		l.left--
	}
	return text, first, nil
}
