package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// row is one figure at one size. Its fields in JSON are the contract with whoever reads
// the file.
type row struct {
	Name    string     `json:"name"`
	Size    int64      `json:"size"` // bytes
	Value   float64    `json:"value"`
	Unit    string     `json:"unit"`
	Limit   *float64   `json:"limit"` // in the same unit; nil if there is none
	Ratio   *float64   `json:"ratio"` // of value to limit
	Repeats int        `json:"repeats"`
	Range   [2]float64 `json:"range"` // least and greatest value
	Note    string     `json:"note,omitempty"`
}

// measured is a row without a limit: the median of a series, each value times scale.
func measured(name string, size int64, unit string, scale float64, series []float64) row {
	r := row{Name: name, Size: size, Unit: unit, Value: median(series) * scale, Repeats: len(series)}
	if len(series) > 0 {
		r.Range = [2]float64{slices.Min(series) * scale, slices.Max(series) * scale}
	}
	return r
}

// compared is a row with the limit that was measured in turns with it.
func compared(name string, size int64, unit string, scale float64, product, limit []float64) row {
	return measured(name, size, unit, scale, product).against(median(limit) * scale)
}

// against gives a row its limit, in the row's unit.
func (r row) against(limit float64) row {
	r.Limit = &limit
	if limit != 0 {
		ratio := r.Value / limit
		r.Ratio = &ratio
	}
	return r
}

// report writes rows as they come: to a table, and to a file if there is one.
type report struct {
	options
	out   io.Writer
	file  *os.File
	rows  int
	below []string
}

// newReport opens the file, so that one that cannot be written fails before the
// measurement.
func newReport(o options, out io.Writer) (*report, error) {
	r := &report{options: o, out: out}
	if o.json != "" {
		var err error
		if r.file, err = os.Create(o.json); err != nil {
			return nil, fmt.Errorf("bench: -json: %w", err)
		}
	}
	fmt.Fprintf(out, "%s, %s, %d processors; %d probes of %v for each figure\n\n",
		runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, runtime.GOMAXPROCS(0), o.repeats(), o.probeTime())
	fmt.Fprintf(out, layoutOfLine, "row", "size", "value", "unit", "limit", "ratio", "target", "range", "")
	return r, nil
}

const layoutOfLine = "%-28s %8s %10s %-9s %9s %6s  %-12s %-21s %s\n"

// add writes a row, unless it was not asked for.
func (r *report) add(w row) error {
	if !r.selected(w.Name) {
		return nil
	}
	for _, v := range []float64{w.Value, w.Range[0], w.Range[1]} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("bench: row %s of %s has the value %v", w.Name, sizeText(w.Size), v)
		}
	}
	t := targetOf(w.Name, w.Size)
	var remarks []string
	if t.missed(w) {
		remarks = append(remarks, "below")
		r.below = append(r.below, w.Name+" "+sizeText(w.Size))
	}
	if w.Note != "" {
		remarks = append(remarks, w.Note)
	}
	r.rows++
	limit, ratio := "-", "-"
	if w.Limit != nil {
		limit = number(*w.Limit)
	}
	if w.Ratio != nil {
		ratio = fmt.Sprintf("%.2f", *w.Ratio)
	}
	between := number(w.Range[0]) + " - " + number(w.Range[1])
	fmt.Fprintf(r.out, layoutOfLine, w.Name, sizeText(w.Size), number(w.Value), w.Unit, limit, ratio, t, between, strings.Join(remarks, "; "))
	if r.file == nil {
		return nil
	}
	line, err := json.Marshal(w)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("bench: write row %s: %w", w.Name, err)
	}
	return nil
}

// summarize says how many rows are under their target, and which.
func (r *report) summarize() {
	fmt.Fprintf(r.out, "\n%d rows, %d below their targets", r.rows, len(r.below))
	if len(r.below) > 0 {
		fmt.Fprintf(r.out, ": %s", strings.Join(r.below, ", "))
	}
	fmt.Fprintln(r.out)
}

func (r *report) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("bench: -json: %w", err)
	}
	return nil
}

// number writes a figure with three significant digits at least.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', 2, 64) + "M"
	case a >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', 1, 64) + "k"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.01 || a == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

// sizeText writes a number of bytes.
func sizeText(n int64) string {
	switch {
	case n >= gib && n%gib == 0:
		return fmt.Sprintf("%d GiB", n/gib)
	case n >= mib && n%mib == 0:
		return fmt.Sprintf("%d MiB", n/mib)
	case n >= kib && n < mib && n%kib == 0:
		return fmt.Sprintf("%d KiB", n/kib)
	case n >= mib:
		return fmt.Sprintf("%.1f MiB", float64(n)/mib)
	}
	return fmt.Sprintf("%d B", n)
}
