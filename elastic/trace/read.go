package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
)

// MaxRows bounds the rows of a table.
const MaxRows = 1 << 22

const mebibyte = 1 << 20

// FieldError says what is wrong with which field of which file. Line counts from 1, the
// line of the names.
type FieldError struct {
	File  string
	Line  int
	Field string
	Value string
	Want  string
}

// Error names file, line and field.
func (e *FieldError) Error() string {
	return fmt.Sprintf("trace: %s:%d: field %s %q: want %s", e.File, e.Line, e.Field, e.Value, e.Want)
}

// Job is a task of a trace and when it comes and goes. Times count from the begin of the
// trace; End is before Start, or equal, if it is not known.
type Job struct {
	sched.Task
	Start, End time.Duration
}

// Tasks returns the tasks of jobs.
func Tasks(jobs []Job) []sched.Task {
	tasks := make([]sched.Task, len(jobs))
	for i, j := range jobs {
		tasks[i] = j.Task
	}
	return tasks
}

// table reads the rows of a CSV file by the names of its columns.
type table struct {
	file    string
	rows    *csv.Reader
	columns map[string]int
	row     []string
	line    int
	errs    []error
}

// newTable reads the names of the columns. Each of want has to be one of them; names that
// it does not know are passed over.
func newTable(file string, r io.Reader, want ...string) (*table, error) {
	t := &table{file: file, rows: csv.NewReader(r), columns: make(map[string]int), line: 1}
	t.rows.ReuseRecord = true
	names, err := t.rows.Read()
	if err != nil {
		return nil, fmt.Errorf("trace: %s:1: no line of column names: %w", file, err)
	}
	for i, name := range names {
		name = strings.TrimSpace(name)
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff") // byte order mark
		}
		if _, exists := t.columns[name]; exists {
			t.errs = append(t.errs, t.fault("column", name, "every name once"))
		}
		if name == custom {
			t.errs = append(t.errs, t.fault("column", name, "the name of a resource after the point"))
		}
		t.columns[name] = i
	}
	for _, name := range want {
		if _, ok := t.columns[name]; !ok {
			t.errs = append(t.errs, t.fault(name, "", "a column of this name, there are "+strings.Join(names, ", ")))
		}
	}
	return t, errors.Join(t.errs...)
}

// next reads the next row. It returns false at the end and at the first fault.
func (t *table) next() bool {
	if len(t.errs) > 0 {
		return false
	}
	row, err := t.rows.Read()
	switch {
	case errors.Is(err, io.EOF):
		return false
	case err != nil:
		t.errs = append(t.errs, fmt.Errorf("trace: %s: %w", t.file, err)) // names line and column
		return false
	case t.line > MaxRows:
		t.errs = append(t.errs, t.fault("rows", strconv.Itoa(t.line), fmt.Sprintf("at most %d", MaxRows)))
		return false
	}
	t.line, _ = t.rows.FieldPos(0)
	t.row = row
	return true
}

func (t *table) fault(field, value, want string) error {
	return &FieldError{File: t.file, Line: t.line, Field: field, Value: value, Want: want}
}

// text returns a cell, "" if there is no such column.
func (t *table) text(field string) string {
	i, ok := t.columns[field]
	if !ok {
		return ""
	}
	return strings.TrimSpace(t.row[i])
}

// name returns a cell that may not be empty.
func (t *table) name(field string) string {
	v := t.text(field)
	if v == "" {
		t.errs = append(t.errs, t.fault(field, v, "a name"))
	}
	return v
}

// integer returns a cell as a number of 0 to most.
func (t *table) integer(field string, most int64) int64 {
	v, err := strconv.ParseInt(t.text(field), 10, 64)
	if err != nil || v < 0 || v > most {
		t.errs = append(t.errs, t.fault(field, t.text(field), fmt.Sprintf("an integer of 0 to %d", most)))
		return 0
	}
	return v
}

// optional is as integer, but an empty cell or a column that is not there is 0.
func (t *table) optional(field string, most int64) int64 {
	if t.text(field) == "" {
		return 0
	}
	return t.integer(field, most)
}

// number returns a cell as a finite number, times unit and rounded.
func (t *table) number(field string, unit float64) int64 {
	if t.text(field) == "" {
		return 0
	}
	v, err := strconv.ParseFloat(t.text(field), 64)
	if err != nil || !(v >= 0 && v*unit <= sched.MaxAmount) {
		t.errs = append(t.errs, t.fault(field, t.text(field), fmt.Sprintf("a number of 0 to %v", sched.MaxAmount/unit)))
		return 0
	}
	return int64(math.Round(v * unit))
}

// seconds returns a cell as a duration.
func (t *table) seconds(field string) time.Duration {
	return time.Duration(t.optional(field, math.MaxInt64/int64(time.Second))) * time.Second
}

// list returns the parts of a cell that "|" parts.
func (t *table) list(field string) []string {
	if t.text(field) == "" {
		return nil
	}
	list := strings.Split(t.text(field), "|")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// once checks that no row before had the name.
func (t *table) once(seen map[string]bool, field, name string) {
	if seen[name] {
		t.errs = append(t.errs, t.fault(field, name, "every name once"))
	}
	seen[name] = true
}

// valid turns a fault of a whole row into one of its line.
func (t *table) valid(err error) {
	if err != nil && len(t.errs) == 0 {
		t.errs = append(t.errs, fmt.Errorf("trace: %s:%d: %w", t.file, t.line, err))
	}
}
