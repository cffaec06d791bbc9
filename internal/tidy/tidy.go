package tidy

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// Fault is one place where the source breaks a rule.
type Fault struct {
	// File is the path relative to the root, with slashes.
	File string
	// Line counts from 1; zero speaks of the whole file or directory.
	Line int
	// Rule is the name of the broken rule, one word.
	Rule string
	// Text says what is wrong.
	Text string
}

// String returns the fault in the form file:line: rule: text.
func (f Fault) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text)
}

// Check reads every file under the root of a module and returns its faults sorted by
// file and line, none for a tidy module. The root must hold go.mod. Directories whose
// name starts with a dot or an underscore are skipped, .ci excepted, and so are nested
// modules; files under testdata are text only. The error is non-nil when a file cannot
// be read or parsed.
func Check(root fs.FS) ([]Fault, error) {
	t, err := load(root)
	if err != nil {
		return nil, fmt.Errorf("tidy: %w", err)
	}
	rules := []func(*tree) []Fault{
		checkImports, checkPurity, checkClocks, checkSize, checkDocs, checkNames, checkText,
	}
	var faults []Fault
	for _, rule := range rules {
		faults = append(faults, rule(t)...)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return faults, nil
}

var errNoModule = errors.New("go.mod names no module")
