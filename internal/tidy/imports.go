package tidy

import (
	"fmt"
	"strings"
)

// checkImports holds the order of the packages and the places where other modules
// may be used.
func checkImports(t *tree) []Fault {
	var faults []Fault
	for _, s := range t.files {
		if _, ok := rowOf(s.dir); !ok {
			faults = append(faults, t.fault(s, s.ast.Package, "imports",
				"package %s has no level: add it to the table of internal/tidy", s.dir))
			continue
		}
		for _, i := range t.imports(s) {
			reason := t.refuse(s, i.path)
			if reason != "" {
				faults = append(faults, Fault{File: s.path, Line: i.line, Rule: "imports", Text: reason})
			}
		}
	}
	return faults
}

// refuse returns why s may not import target, or nothing.
func (t *tree) refuse(s source, target string) string {
	if target == t.module {
		return refuseLocal(s, ".")
	}
	if local, ok := strings.CutPrefix(target, t.module+"/"); ok {
		return refuseLocal(s, local)
	}
	if first, _, _ := strings.Cut(target, "/"); strings.Contains(first, ".") {
		return refuseModule(s, target)
	}
	return "" // standard library
}

func refuseLocal(s source, target string) string {
	from, _ := rowOf(s.dir)
	to, ok := rowOf(target)
	switch {
	case !ok:
		return fmt.Sprintf("%s has no level: add it to the table of internal/tidy", target)
	case isLeaf(target) && from.level < topLevel && !s.test && !within(s.dir, target):
		return fmt.Sprintf("%s is a leaf: only programs and tests import it", target)
	case from.dir == to.dir:
		return ""
	case from.level == topLevel && internalTo(target) && !s.test && measures[s.dir] != target:
		return fmt.Sprintf("programs use public packages only, not %s", target)
	case to.level < from.level, s.test && to.level == from.level:
		return ""
	}
	return fmt.Sprintf("%s (level %d) may not import %s (level %d)", s.dir, from.level, target, to.level)
}

func refuseModule(s source, target string) string {
	var found *module
	for i, m := range modules {
		if within(target, m.path) && (found == nil || len(m.path) > len(found.path)) {
			found = &modules[i]
		}
	}
	switch {
	case found == nil:
		return fmt.Sprintf("module of %s is not in the table of internal/tidy", target)
	case found.tests && !s.test && !strings.HasSuffix(s.dir, "test"):
		return fmt.Sprintf("%s is for tests only", found.path)
	case len(found.dirs) == 0:
		return ""
	}
	for _, dir := range found.dirs {
		if within(s.dir, dir) {
			return ""
		}
	}
	return fmt.Sprintf("%s is imported in %s only", found.path, strings.Join(found.dirs, ", "))
}

// rowOf returns the most specific row for a directory. The root's row is for the
// root alone.
func rowOf(dir string) (row, bool) {
	var best row
	found := false
	for _, r := range levels {
		if within(dir, r.dir) && (!found || len(r.dir) > len(best.dir)) {
			best, found = r, true
		}
	}
	return best, found
}

func isLeaf(dir string) bool {
	for _, leaf := range leaves {
		if within(dir, leaf) {
			return true
		}
	}
	return false
}
