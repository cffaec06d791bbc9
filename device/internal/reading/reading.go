package reading

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/elasticps/elasticps/device"
)

// Cell is one value of a text and where it stands.
type Cell struct {
	Source string
	Line   int // counted from 1
	Field  string
	Text   string
}

// unknownWords stand for a value that is not reported, in lower case.
var unknownWords = [...]string{"", "-", "--", "na", "n/a", "none", "unknown", "err!", "not supported", "unknown error", "insufficient permissions"}

// IsUnknown reports whether a text says that there is no value.
func IsUnknown(text string) bool {
	text = strings.ToLower(strings.TrimSpace(text))
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		return true // nvidia-smi puts every reason in brackets
	}
	for _, w := range unknownWords {
		if text == w {
			return true
		}
	}
	return false
}

// Fault returns the error for a cell that should be something else.
func (c Cell) Fault(want string) error {
	return &device.TextError{Source: c.Source, Line: c.Line, Field: c.Field, Text: c.Text, Want: want}
}

// Number reads a decimal number with or without its unit.
func (c Cell) Number(unit string) (device.Figure[float64], error) {
	if IsUnknown(c.Text) {
		return device.Figure[float64]{}, nil
	}
	text := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(c.Text), unit))
	v, ok := Decimal(text)
	if !ok {
		return device.Figure[float64]{}, c.Fault("a number of " + unit)
	}
	return device.Known(v), nil
}

// Index reads a number that counts from 0.
func (c Cell) Index() (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(c.Text), 10, 16)
	if err != nil {
		return 0, c.Fault("a number from 0 to 65535")
	}
	return int(n), nil
}

// Decimal reads a finite number in plain decimal notation.
func Decimal(text string) (float64, bool) {
	if strings.Trim(text, "+-.0123456789") != "" {
		return 0, false // ParseFloat takes "inf", "nan" and hexadecimal numbers
	}
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil
}

// Fraction returns a percentage as a fraction; outside 0 to 100 it is unknown.
func Fraction(percent device.Figure[float64]) device.Figure[float64] {
	if !percent.Known || !(percent.Value >= 0 && percent.Value <= 100) {
		return device.Figure[float64]{}
	}
	return device.Known(percent.Value / 100)
}

// Bytes returns a number of units of memory in bytes; below 0 and above 1 PiB it is unknown.
func Bytes(v device.Figure[float64], unit int64) device.Figure[int64] {
	if !v.Known || !(v.Value >= 0 && v.Value*float64(unit) <= 1<<50) {
		return device.Figure[int64]{}
	}
	return device.Known(int64(math.Round(v.Value * float64(unit))))
}

// MemoryErrors judges a device by its memory errors since the driver was loaded: uncorrected ones
// are a failure, corrected ones a warning, none a sign of health. What is worse already stays.
func MemoryErrors(d *device.Device, uncorrected, corrected device.Figure[float64]) {
	found, fault := device.HealthUnknown, ""
	switch {
	case uncorrected.Known && uncorrected.Value > 0:
		found, fault = device.Failed, fmt.Sprintf("%.0f uncorrected memory errors", uncorrected.Value)
	case corrected.Known && corrected.Value > 0:
		found, fault = device.Degraded, fmt.Sprintf("%.0f corrected memory errors", corrected.Value)
	case uncorrected.Known || corrected.Known:
		found = device.Healthy
	}
	if found > d.Health {
		d.Health, d.Fault = found, fault
	}
}

// BusID returns a PCI address in the form 0000:c1:00.0, or nothing if it is none.
func BusID(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	parts := strings.Split(text, ":")
	if len(parts) == 2 {
		parts = append([]string{"0000"}, parts...) // the domain is left out where there is one only
	}
	if len(parts) != 3 || len(parts[1]) != 2 || len(parts[2]) != 4 || parts[2][2] != '.' {
		return ""
	}
	domain, err := strconv.ParseUint(parts[0], 16, 32)
	if err != nil || strings.Trim(parts[1]+parts[2], "0123456789abcdef.") != "" {
		return ""
	}
	digits := strconv.FormatUint(domain, 16)
	return strings.Repeat("0", max(0, 4-len(digits))) + digits + ":" + parts[1] + ":" + parts[2]
}
