package device

import "fmt"

// Figure is a number that a source may not know. The zero value is unknown, which is a
// value and not an error: whoever reads it leaves that signal out. Two figures are equal
// when == says so.
type Figure[T int | int64 | float64] struct {
	Value T    // without meaning unless Known
	Known bool // whether Value was reported
}

// Known returns the figure of a value that was reported.
func Known[T int | int64 | float64](v T) Figure[T] { return Figure[T]{Value: v, Known: true} }

// Or returns the value, or instead when it is unknown.
func (f Figure[T]) Or(instead T) T {
	if f.Known {
		return f.Value
	}
	return instead
}

// String returns the value in decimal, or "unknown".
func (f Figure[T]) String() string {
	if !f.Known {
		return "unknown"
	}
	return fmt.Sprint(f.Value)
}

// fill takes the other figure where this one is unknown.
func (f *Figure[T]) fill(other Figure[T]) {
	if !f.Known {
		*f = other
	}
}

// bound forgets a value that lies outside low and high or is no number.
func (f *Figure[T]) bound(low, high T) {
	if !(f.Value >= low && f.Value <= high) {
		*f = Figure[T]{}
	}
}
