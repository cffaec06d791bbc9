package exporter

import (
	"math"
	"strconv"
	"strings"

	"github.com/elasticps/elasticps/device/internal/reading"
)

// sample is one line of a page.
type sample struct {
	reading.Cell // Field is the name of the metric, Text the line
	labels       map[string]string
	value        float64
}

// label returns the first of the labels that is there and not empty.
func (s sample) label(names ...string) string {
	for _, n := range names {
		if v := s.labels[n]; v != "" {
			return v
		}
	}
	return ""
}

// samples returns the samples of the metrics whose names begin with prefix.
func samples(source, prefix, text string) ([]sample, error) {
	var list []sample
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, prefix) { // comments and the exporter's own metrics
			continue
		}
		s, err := parseSample(reading.Cell{Source: source, Line: number, Text: line})
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// parseSample reads "name{label="value",...} number [time]".
func parseSample(c reading.Cell) (sample, error) {
	end := strings.IndexAny(c.Text, "{ \t")
	if end < 0 {
		c.Field = c.Text[:min(len(c.Text), maxName)]
		return sample{}, c.Fault("a metric with a value")
	}
	c.Field = c.Text[:min(end, maxName)]
	s := sample{Cell: c}
	rest := c.Text[end:]
	if rest[0] == '{' {
		var err error
		if s.labels, rest, err = parseLabels(c, rest[1:]); err != nil {
			return sample{}, err
		}
	}
	fields := strings.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 {
		return sample{}, c.Fault("a value and at most a time")
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		c.Text = fields[0]
		return sample{}, c.Fault("a number")
	}
	s.value = v
	return s, nil
}

const (
	maxName   = 128 // bytes of a name that an error quotes
	maxLabels = 64  // of a sample
)

// parseLabels reads up to the closing brace and returns what follows it.
func parseLabels(c reading.Cell, text string) (map[string]string, string, error) {
	labels := make(map[string]string)
	for {
		text = strings.TrimLeft(text, " \t,")
		if rest, ok := strings.CutPrefix(text, "}"); ok {
			return labels, rest, nil
		}
		name, rest, ok := strings.Cut(text, "=")
		rest, quoted := strings.CutPrefix(strings.TrimLeft(rest, " \t"), `"`)
		if !ok || !quoted || len(labels) == maxLabels {
			return nil, "", c.Fault("labels as name=\"value\", at most " + strconv.Itoa(maxLabels))
		}
		value, rest, ok := unquote(rest)
		if !ok {
			return nil, "", c.Fault("a label that ends with a quote")
		}
		labels[strings.TrimSpace(name)] = value
		text = rest
	}
}

// unquote returns the value up to the closing quote, and what follows it.
func unquote(text string) (value, rest string, ok bool) {
	if end := strings.IndexAny(text, `"\`); end >= 0 && text[end] == '"' {
		return text[:end], text[end+1:], true
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return b.String(), text[i+1:], true
		case text[i] == '\\' && i+1 < len(text):
			i++
			if text[i] == 'n' {
				b.WriteByte('\n')
				continue
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(text[i])
		}
	}
	return "", "", false
}

// isNumber reports whether a value is neither infinite nor NaN.
func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
