package tidy

import (
	"go/ast"
	"slices"
)

// wallNames are the methods that turn a time into one of the calendar: the monotonic
// reading is gone then, and a difference jumps when the clock of the host is set.
var wallNames = []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano"}

// checkClocks keeps leases, timeouts and intervals free of the wall clock.
func checkClocks(t *tree) []Fault {
	var faults []Fault
	for _, s := range t.files {
		if s.test || slices.Contains(wallClocks, s.path) {
			continue
		}
		ast.Inspect(s.ast, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) > 0 {
				return true
			}
			if name, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(wallNames, name.Sel.Name) {
				faults = append(faults, t.fault(s, node.Pos(), "clock", "%s is the wall clock, which jumps", name.Sel.Name))
			}
			return true
		})
	}
	return faults
}
