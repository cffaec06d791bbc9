package tidy

import (
	"go/ast"
	"go/token"
	"path"
)

// checkDocs wants a comment on every exported symbol and a doc.go with the package's
// comment in every package. Programs need the comment in any file.
func checkDocs(t *tree) []Fault {
	var faults []Fault
	documented := make(map[string]bool)
	first := make(map[string]source)
	for _, s := range t.files {
		if s.test {
			continue
		}
		if _, ok := first[s.dir]; !ok {
			first[s.dir] = s
		}
		isMain := s.ast.Name.Name == "main"
		if s.ast.Doc != nil && (isMain || path.Base(s.path) == "doc.go") {
			documented[s.dir] = true
		}
		if !isMain && !s.generated {
			faults = append(faults, t.undocumented(s)...)
		}
	}
	for dir, s := range first {
		if !documented[dir] {
			faults = append(faults, Fault{s.path, 0, "docs", "package " + dir + " has no doc.go with its comment"})
		}
	}
	return faults
}

func (t *tree) undocumented(s source) []Fault {
	var faults []Fault
	want := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if doc != nil && doc.Text() != "" {
				return
			}
		}
		if name.IsExported() {
			faults = append(faults, t.fault(s, name.Pos(), "docs", "exported %s has no comment", name.Name))
		}
	}
	for _, decl := range s.ast.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if receiver := receiverOf(d); receiver == nil || receiver.IsExported() {
				want(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				wantSpec(d, spec, want)
			}
		}
	}
	return faults
}

// wantSpec asks for the comment of one type, or of each name of one constant or
// variable, for which the comment of its group will do.
func wantSpec(d *ast.GenDecl, spec ast.Spec, want func(*ast.Ident, ...*ast.CommentGroup)) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		docs := []*ast.CommentGroup{s.Doc}
		if d.Lparen == token.NoPos {
			docs = append(docs, d.Doc)
		}
		want(s.Name, docs...)
		if methods, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
			if methods.Methods.NumFields() == 1 {
				return // the comment of the type is about its only method
			}
			for _, m := range methods.Methods.List {
				for _, name := range m.Names {
					want(name, m.Doc, m.Comment)
				}
			}
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			want(name, s.Doc, s.Comment, d.Doc)
		}
	}
}

// receiverOf returns the name of a method's type, nil for a function.
func receiverOf(f *ast.FuncDecl) *ast.Ident {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return nil
	}
	expr := f.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e
		default:
			return nil
		}
	}
}
