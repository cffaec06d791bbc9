package tidy

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestModuleIsTidy is what the package is for.
func TestModuleIsTidy(t *testing.T) {
	faults, err := Check(os.DirFS("../.."))
	require.NoError(t, err)
	for _, f := range faults {
		t.Error(f)
	}
}

// TestPureFilesExist fails when a file of the table was renamed: its row would go on
// checking nothing.
func TestPureFilesExist(t *testing.T) {
	for _, name := range pure {
		if path.Ext(name) == ".go" {
			require.FileExists(t, filepath.Join("../..", name))
		}
	}
}

// TestRules gives each rule a module of one file that breaks it and one that does
// not. The file is a package's doc.go unless it is named otherwise.
func TestRules(t *testing.T) {
	const documented = "// Package p is documented.\npackage p\n"
	tests := []struct {
		name, path, source string
		want               string // part of the one fault, nothing for none
	}{
		{"lower level", "ps/doc.go", documented + `import _ "m/shard"`, ""},
		{"higher level", "shard/doc.go", documented + `import _ "m/ps"`, "shard (level 2) may not import ps (level 4)"},
		{"same level", "actor/doc.go", documented + `import _ "m/topology"`, "actor (level 2) may not import topology (level 2)"},
		{"same level in a test", "actor/a_test.go", `package p; import _ "m/topology"`, ""},
		{"higher level in a test", "actor/a_test.go", `package p; import _ "m/ps"`, "may not import ps"},
		{"same row", "shard/store/x/doc.go", documented + `import _ "m/shard/store"`, ""},
		{"other row above", "shard/store/doc.go", documented + `import _ "m/shard"`, "may not import shard (level 2)"},
		{"not like a prefix", "shards/doc.go", documented, "package shards has no level"},
		{"no level", "fresh/doc.go", documented, "package fresh has no level"},
		{"import without level", "ps/doc.go", documented + `import _ "m/fresh"`, "fresh has no level"},
		{"root imports", "doc.go", documented + `import _ "m/ps"`, ""},
		{"import of root", "ps/doc.go", documented + `import _ "m"`, "may not import . (level 6)"},
		{"program", "examples/a/doc.go", documented + `import (_ "m/ps"; _ "m/shard/store/boltstore"; _ "m/examples/internal/b")`, ""},
		{"program with internal", "examples/a/doc.go", documented + `import _ "m/internal/wire"`, "public packages only, not internal/wire"},
		{"leaf", "elastic/doc.go", documented + `import _ "m/shard/store/boltstore"`, "boltstore is a leaf"},
		{"leaf in a test", "elastic/a_test.go", `package p; import _ "m/shard/store/boltstore"`, ""},
		{"ergo in actor", "actor/doc.go", documented + `import _ "github.com/ergo-services/ergo/gen"`, ""},
		{"ergo elsewhere", "ps/doc.go", documented + `import _ "github.com/ergo-services/ergo/gen"`, "ergo is imported in actor only"},
		{"ergo in a test", "ps/a_test.go", `package p; import _ "github.com/ergo-services/ergo"`, "ergo is imported in actor only"},
		{"bbolt elsewhere", "shard/store/doc.go", documented + `import _ "go.etcd.io/bbolt"`, "bbolt is imported in shard/store/boltstore only"},
		{"unknown module", "ps/doc.go", documented + `import _ "example.com/x"`, "module of example.com/x is not in the table"},
		{"testify in a test", "ps/a_test.go", `package p; import _ "github.com/stretchr/testify/require"`, ""},
		{"testify in test support", "shard/store/storetest/doc.go", documented + `import _ "github.com/stretchr/testify/require"`, ""},
		{"testify elsewhere", "ps/doc.go", documented + `import _ "github.com/stretchr/testify/require"`, "testify is for tests only"},

		{"wall clock", "ps/doc.go", documented + `import "time"; var d = time.Now().UnixNano()`, "UnixNano is the wall clock"},
		{"wall clock in a test", "ps/a_test.go", `package p; import "time"; var d = time.Now().UnixNano()`, ""},
		{"time from a number", "ps/doc.go", documented + `import "time"; var d = time.Unix(1, 2)`, ""},
		{"duration", "shard/doc.go", documented + `import "time"; const c = time.Second; var d time.Duration`, ""},
		{"clock", "shard/doc.go", documented + `import "time"; var d = time.Now()`, "may not use time.Now"},
		{"renamed clock", "shard/doc.go", documented + `import clock "time"; var d = clock.Since`, "may not use time.Since"},
		{"dotted clock", "shard/doc.go", documented + `import . "time"; var d = Now()`, "time with a dot"},
		{"clock in a shell", "shard/store/doc.go", documented + `import "time"; var d = time.Now()`, ""},
		{"clock in a test", "shard/a_test.go", `package p; import "time"; var d = time.Now()`, ""},
		{"seeded", "shard/doc.go", documented + `import "math/rand/v2"; var r *rand.Rand = rand.New(rand.NewPCG(1, 2))`, ""},
		{"global rand", "topology/doc.go", documented + `import "math/rand/v2"; var r = rand.IntN(3)`, "may not use math/rand/v2.IntN"},
		{"old global rand", "topology/doc.go", documented + `import "math/rand"; var r = rand.Intn(3)`, "may not use math/rand.Intn"},
		{"net", "shard/doc.go", documented + `import _ "net/netip"`, "may not import net/netip"},
		{"os", "shard/doc.go", documented + `import _ "os"`, "may not import os"},
		{"not os", "shard/doc.go", documented + `import _ "oscar"`, ""},
		{"goroutine", "shard/doc.go", documented + `func f() { go f() }`, "may not use a goroutine"},
		{"channel", "shard/doc.go", documented + `var c chan int`, "may not use a channel"},
		{"select", "shard/doc.go", documented + `func f() { select {} }`, "may not use select"},

		{"long function", "ps/doc.go", documented + "func f() {" + strings.Repeat("\n", 72) + "}", "function f has 73 lines"},
		{"function in a test", "ps/a_test.go", "package p\nfunc f() {" + strings.Repeat("\n", 72) + "}", ""},
		{"generated function", "ps/doc.go", "// Code generated by x. DO NOT EDIT.\n\n" + documented + "func f() {" + strings.Repeat("\n", 72) + "}", ""},
		{"rather long function", "ps/doc.go", documented + "func f() {" + strings.Repeat("\n", 60) + "}", "0 of 1 functions are within 57 lines"},
		{"long file", "ps/doc.go", documented + strings.Repeat("\n", 650), "file has 652 lines, limit 650"},

		{"no comment", "ps/doc.go", documented + "func F() {}", "exported F has no comment"},
		{"comment", "ps/doc.go", documented + "// F does.\nfunc F() {}", ""},
		{"method", "ps/doc.go", documented + "type t struct{}\nfunc (t) F() {}\n// T is.\ntype T[K any] struct{}\nfunc (*T[K]) G() {}", "exported G has no comment"},
		{"type", "ps/doc.go", documented + "type T int", "exported T has no comment"},
		{"grouped types", "ps/doc.go", documented + "// All.\ntype (\nT int\n)", "exported T has no comment"},
		{"grouped constants", "ps/doc.go", documented + "// All.\nconst (\nA = 1\n)", ""},
		{"constant", "ps/doc.go", documented + "const (\nA = 1\n)", "exported A has no comment"},
		{"interface", "ps/doc.go", documented + "// I is.\ntype I interface {\n// F does.\nF()\nG()\n}", "exported G has no comment"},
		{"interface of one method", "ps/doc.go", documented + "// I is.\ntype I interface { F() }", ""},
		{"no doc.go", "ps/a.go", "// Package p is.\npackage p", "package ps has no doc.go"},
		{"doc.go without comment", "ps/doc.go", "package p", "package ps has no doc.go"},
		{"program without comment", "examples/a/main.go", "package main\nfunc F() {}", "has no doc.go with its comment"},
		{"program with comment", "examples/a/main.go", "// Command a runs.\npackage main\nfunc F() {}", ""},
		{"tests only", "ps/a_test.go", "package p\nfunc F() {}", ""},

		{"vague type", "ps/doc.go", documented + "type shardManager int", "type shardManager: the word Manager"},
		{"vague package", "ps/doc.go", "// Package util is.\npackage util", "package util: the word util"},
		{"not vague", "ps/doc.go", documented + "type database int\ntype httpServer int", ""},
		{"init", "ps/doc.go", documented + "func init() {}", "func init"},

		{"note", "ps/doc.go", documented + "// TO" + "DO: later", "a note to oneself"},
		{"not a note", "ps/doc.go", documented + "// TO" + "DOs", ""},
		{"path", "README.md", "see /ho" + "me/me/x", "a path of somebody's machine"},
		{"path in testdata", "ps/testdata/a.txt", "/ro" + "ot/x", "a path of somebody's machine"},
		{"path in the checks", ".ci/run", "cd /ro" + "ot/x", "a path of somebody's machine"},
		{"route", "README.md", "https://example.com/ho" + "me/x", ""},
		{"binary", "a.bin", "\x00 /ro" + "ot/x", ""},
		{"hidden", ".git/x", "/ro" + "ot/x", ""},
		{"broken testdata", "ps/testdata/a.go", "not Go", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			faults, err := Check(fstest.MapFS{
				"go.mod": {Data: []byte("module m\n\ngo 1.25\n")},
				tt.path:  {Data: []byte(tt.source)},
			})
			require.NoError(t, err)
			if tt.want == "" {
				require.Empty(t, faults)
				return
			}
			require.Condition(t, func() bool {
				for _, f := range faults {
					if strings.Contains(f.String(), tt.want) {
						return true
					}
				}
				return false
			}, "want %q in %v", tt.want, faults)
		})
	}
}

func TestCheckSkipsNestedModules(t *testing.T) {
	faults, err := Check(fstest.MapFS{
		"go.mod":       {Data: []byte("module m\n")},
		"tools/go.mod": {Data: []byte("module m/tools\n")},
		"tools/a.go":   {Data: []byte("not Go")},
	})
	require.NoError(t, err)
	require.Empty(t, faults)
}

func TestCheckSortsFaults(t *testing.T) {
	faults, err := Check(fstest.MapFS{
		"go.mod":    {Data: []byte("module m\n")},
		"ps/doc.go": {Data: []byte("// Package p is.\npackage p\n\ntype Manager int\n")},
		"ps/a.go":   {Data: []byte("package p\n\nimport _ \"m/elastic\"\n")},
	})
	require.NoError(t, err)
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	require.Equal(t, []string{
		"ps/a.go:3: imports: ps (level 4) may not import elastic (level 5)",
		"ps/doc.go:4: docs: exported Manager has no comment",
		"ps/doc.go:4: names: type Manager: the word Manager says nothing",
	}, lines)
}

func TestCheckFails(t *testing.T) {
	tests := []struct {
		name string
		root fstest.MapFS
		want string
	}{
		{"no module file", fstest.MapFS{}, "go.mod"},
		{"no module", fstest.MapFS{"go.mod": {}}, "names no module"},
		{"no Go", fstest.MapFS{"go.mod": {Data: []byte("module m\n")}, "a.go": {Data: []byte("x")}}, "a.go:1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Check(tt.root)
			require.ErrorContains(t, err, "tidy: ")
			require.ErrorContains(t, err, tt.want)
		})
	}
}
