package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWords(t *testing.T) {
	source := "package p\n// Comment words.\nfunc (t *T) f() error { return t.g(\"string\", 1.5) }"
	require.Equal(t, strings.Fields("package p func t T f error return t g"), slices.Collect(words([]byte(source))))
	require.Empty(t, slices.Collect(words(nil)))
	// A source that is none is no reason to stop.
	require.Contains(t, slices.Collect(words([]byte("func \x00 \"unended\nif x {"))), "func")
	for word := range words([]byte("a b c")) {
		require.Equal(t, "a", word)
		break
	}
}

// writeTree makes Go files with the given contents below a folder of the test.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

func TestReadCorpus(t *testing.T) {
	same := "a b a c rare" // in each of three files, of which one is held out
	dir := writeTree(t, map[string]string{
		"a.go":           same + "1",
		"sub/b.go":       same + "2",
		"sub/c.go":       same + "3",
		"testdata/no.go": "secret secret secret",
		"x/vendor/no.go": "secret secret secret",
		"readme.md":      "secret secret secret",
		"large.go":       strings.Repeat("secret ", maxFileBytes/7+1),
	})
	c, err := readCorpus(dir, 1000, 2, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, c.words)
	require.Equal(t, []int64{4, 2, 2}, c.counts)
	require.EqualValues(t, 8, c.numTrained())
	require.Equal(t, [][]int32{{0, 1, 0, 2}, {0, 1, 0, 2}}, c.train)
	require.Equal(t, [][]int32{{0, 1, 0, 2}}, c.held)

	cut, err := readCorpus(dir, 7, 1, 1) // the second file is cut, the third not read
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, cut.words)

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	again, err := readCorpus(link, 1000, 2, 1)
	require.NoError(t, err)
	require.Equal(t, c, again)
}

func TestReadCorpusBad(t *testing.T) {
	one := writeTree(t, map[string]string{"a.go": "a b"})
	_, err := readCorpus(one, 1000, 1, 1)
	require.ErrorContains(t, err, "word2vec: corpus: 1 Go files in ")
	two := writeTree(t, map[string]string{"a.go": "a b", "b.go": "a b"})
	_, err = readCorpus(two, 1000, 5, 1)
	require.ErrorContains(t, err, "0 words occur 5 times in 2 files, want 2 or more")
	_, err = readCorpus(filepath.Join(one, "gone"), 1000, 1, 1)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestGoRoot(t *testing.T) {
	t.Setenv("GOROOT", "/elsewhere")
	root, err := goRoot()
	require.NoError(t, err)
	require.Equal(t, "/elsewhere", root)
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", "")
	_, err = goRoot()
	require.ErrorContains(t, err, "-corpus DIR")
}
