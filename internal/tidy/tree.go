package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// tree is a module as the rules see it.
type tree struct {
	module string
	fset   *token.FileSet
	texts  []text
	files  []source
}

// text is any file that is not binary.
type text struct {
	path    string
	content []byte
}

// source is one parsed Go file.
type source struct {
	path      string
	dir       string
	test      bool
	generated bool
	lines     int
	ast       *ast.File
}

// imported is one import of a file: its path, the name it is used by, its line.
type imported struct {
	path, name string
	line       int
}

func load(root fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	goMod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		return nil, err
	}
	if t.module = moduleName(goMod); t.module == "" {
		return nil, errNoModule
	}
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipped(root, name):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		return t.add(root, name)
	})
	return t, err
}

func moduleName(goMod []byte) string {
	for line := range strings.Lines(string(goMod)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

func skipped(root fs.FS, dir string) bool {
	name := path.Base(dir)
	if dir == "." || name == ".ci" {
		return false
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return err == nil
}

func (t *tree) add(root fs.FS, name string) error {
	content, err := fs.ReadFile(root, name)
	if err != nil {
		return err
	}
	if bytes.IndexByte(content, 0) >= 0 {
		return nil
	}
	t.texts = append(t.texts, text{path: name, content: content})
	if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") {
		return nil
	}
	file, err := parser.ParseFile(t.fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	t.files = append(t.files, source{
		path:      name,
		dir:       path.Dir(name),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(file),
		lines:     bytes.Count(content, []byte("\n")),
		ast:       file,
	})
	return nil
}

func (t *tree) line(pos token.Pos) int {
	return t.fset.Position(pos).Line
}

func (t *tree) fault(s source, pos token.Pos, rule, format string, args ...any) Fault {
	return Fault{File: s.path, Line: t.line(pos), Rule: rule, Text: fmt.Sprintf(format, args...)}
}

// imports lists what a file imports. The name of an import without one is guessed
// from its path, which is right for the standard library.
func (t *tree) imports(s source) []imported {
	var list []imported
	for _, spec := range s.ast.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser lets no such file through
		}
		name := path.Base(target)
		if name == "v2" {
			name = path.Base(path.Dir(target))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		list = append(list, imported{path: target, name: name, line: t.line(spec.Pos())})
	}
	return list
}

// within reports whether dir is parent or lies below it. Import paths and
// directories are alike here.
func within(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}

// internalTo reports whether a path has an element "internal".
func internalTo(dir string) bool {
	return strings.Contains("/"+dir+"/", "/internal/")
}
