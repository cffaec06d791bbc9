package tidy

import (
	"fmt"
	"go/ast"
)

// checkSize limits the lines of functions and files, tests and generated files
// excepted.
func checkSize(t *tree) []Fault {
	var faults []Fault
	functions, usual := 0, 0
	for _, s := range t.files {
		if s.test || s.generated {
			continue
		}
		if s.lines > maxFileLines {
			faults = append(faults, Fault{s.path, 0, "size", fmt.Sprintf("file has %d lines, limit %d", s.lines, maxFileLines)})
		}
		for _, decl := range s.ast.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := t.line(f.End()) - t.line(f.Pos()) + 1
			functions++
			if lines <= usualFuncLines {
				usual++
			}
			if lines > maxFuncLines {
				faults = append(faults, t.fault(s, f.Pos(), "size",
					"function %s has %d lines, limit %d", f.Name.Name, lines, maxFuncLines))
			}
		}
	}
	if float64(usual) < usualShare*float64(functions) {
		faults = append(faults, Fault{".", 0, "size", fmt.Sprintf("%d of %d functions are within %d lines, fewer than %.0f %%",
			usual, functions, usualFuncLines, usualShare*100)})
	}
	return faults
}
