package tidy

import (
	"go/ast"
	"slices"
	"strings"
	"unicode"
)

// checkNames refuses vague words in the names of packages and types, and functions
// that run by themselves.
func checkNames(t *tree) []Fault {
	var faults []Fault
	for _, s := range t.files {
		if s.generated {
			continue
		}
		if word := vague(s.ast.Name.Name); word != "" {
			faults = append(faults, t.fault(s, s.ast.Name.Pos(), "names",
				"package %s: the word %s says nothing", s.ast.Name.Name, word))
		}
		ast.Inspect(s.ast, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.TypeSpec:
				if word := vague(n.Name.Name); word != "" {
					faults = append(faults, t.fault(s, n.Pos(), "names",
						"type %s: the word %s says nothing", n.Name.Name, word))
				}
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					faults = append(faults, t.fault(s, n.Pos(), "names", "func init: pass what it sets as an argument"))
				}
			}
			return true
		})
	}
	return faults
}

// vague returns the first vague word in a name, or nothing.
func vague(name string) string {
	for _, word := range words(name) {
		if slices.ContainsFunc(vagueWords, func(v string) bool { return strings.EqualFold(v, word) }) {
			return word
		}
	}
	return ""
}

// words splits a name at underscores and where a capital follows a small letter.
func words(name string) []string {
	var list []string
	begin := 0
	runes := []rune(name)
	for i, r := range runes {
		if r == '_' || i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(runes[i-1]) {
			list = append(list, strings.Trim(string(runes[begin:i]), "_"))
			begin = i
		}
	}
	return append(list, strings.Trim(string(runes[begin:]), "_"))
}
