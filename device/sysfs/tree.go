package sysfs

import (
	"cmp"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/device/internal/reading"
)

// Config says where the files are.
type Config struct {
	// Root is the folder that stands for "/". Zero: "/".
	Root string
}

const (
	maxFileBytes = 64 << 10
	maxDevices   = 1024
)

// tree reads the files below a root.
type tree struct {
	fs.FS
}

// read returns the text of a file, and false for one that cannot be read: it is not there,
// or its device does not answer.
func (t tree) read(maxBytes int64, parts ...string) (string, bool) {
	f, err := t.Open(path.Join(parts...))
	if err != nil {
		return "", false
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes))
	return strings.TrimSpace(string(text)), err == nil
}

// number reads a file that holds one number. It is unknown when there is no file.
func (t tree) number(parts ...string) (device.Figure[float64], error) {
	text, ok := t.read(maxFileBytes, parts...)
	if !ok {
		return device.Figure[float64]{}, nil
	}
	c := reading.Cell{Source: "/" + path.Join(parts...), Line: 1, Field: parts[len(parts)-1], Text: text}
	return c.Number("")
}

// properties reads a file of lines with a name and a number each, those that are wanted.
func (t tree) properties(wanted []string, parts ...string) (map[string]uint64, error) {
	text, _ := t.read(maxFileBytes, parts...)
	values := make(map[string]uint64)
	line := 0
	for l := range strings.Lines(text) {
		line++
		name, value, _ := strings.Cut(strings.TrimSpace(l), " ")
		if !slices.Contains(wanted, name) {
			continue
		}
		v, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return nil, reading.Cell{Source: "/" + path.Join(parts...), Line: line, Field: name, Text: value}.Fault("a number")
		}
		values[name] = v
	}
	return values, nil
}

// entry is a numbered file of a folder, such as card12.
type entry struct {
	name   string
	number int
}

// numbered returns the files of a folder whose names are prefix and a number, by number.
func (t tree) numbered(folder, prefix string) ([]entry, error) {
	files, err := fs.ReadDir(t, folder)
	if err != nil {
		return nil, err
	}
	var list []entry
	for _, f := range files {
		digits, ok := strings.CutPrefix(f.Name(), prefix)
		n, err := strconv.ParseUint(digits, 10, 31)
		if ok && err == nil {
			list = append(list, entry{f.Name(), int(n)})
		}
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(a.number, b.number) })
	return list[:min(len(list), maxDevices)], nil
}

// scaled returns a figure in another unit.
func scaled(v device.Figure[float64], factor float64) device.Figure[float64] {
	if v.Known {
		v.Value *= factor
	}
	return v
}

// whole returns a figure as a whole number, which it is.
func whole(v device.Figure[float64]) device.Figure[int] {
	if !v.Known || v.Value < 0 || v.Value > math.MaxInt32 {
		return device.Figure[int]{}
	}
	return device.Known(int(v.Value))
}
