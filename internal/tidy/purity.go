package tidy

import (
	"go/ast"
	"slices"
)

// checkPurity keeps clocks, hidden state, I/O and goroutines out of pure files.
func checkPurity(t *tree) []Fault {
	var faults []Fault
	for _, s := range t.files {
		if !s.test && (slices.Contains(pure, s.dir) || slices.Contains(pure, s.path)) {
			faults = append(faults, t.impureImports(s)...)
			faults = append(faults, t.impureNodes(s)...)
		}
	}
	return faults
}

func (t *tree) impureImports(s source) []Fault {
	var faults []Fault
	for _, i := range t.imports(s) {
		for _, impure := range impureImports {
			if within(i.path, impure) {
				faults = append(faults, Fault{s.path, i.line, "purity", "a pure file may not import " + i.path})
			}
		}
		if _, watched := pureNames[i.path]; watched && i.name == "." {
			faults = append(faults, Fault{s.path, i.line, "purity", "a pure file may not import " + i.path + " with a dot"})
		}
	}
	return faults
}

func (t *tree) impureNodes(s source) []Fault {
	watched := make(map[string]string) // name in this file → import path
	for _, i := range t.imports(s) {
		if _, ok := pureNames[i.path]; ok {
			watched[i.name] = i.path
		}
	}
	var faults []Fault
	report := func(node ast.Node, what string) {
		faults = append(faults, t.fault(s, node.Pos(), "purity", "a pure file may not use %s", what))
	}
	ast.Inspect(s.ast, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.GoStmt:
			report(n, "a goroutine")
		case *ast.SelectStmt:
			report(n, "select")
		case *ast.ChanType:
			report(n, "a channel")
		case *ast.SelectorExpr:
			from, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			if path := watched[from.Name]; path != "" && !slices.Contains(pureNames[path], n.Sel.Name) {
				report(n, path+"."+n.Sel.Name)
			}
		}
		return true
	})
	return faults
}
