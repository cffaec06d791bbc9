package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxFileBytes bounds one file; what is larger is generated and left out.
	maxFileBytes = 1 << 20
	// heldOutShare is the share of the files that is not trained on.
	heldOutShare = 0.05
)

// corpus is a set of texts in words of a vocabulary, each text one file. A word is an
// index into words and counts; words that are rare are left out.
type corpus struct {
	words       []string // by falling count
	counts      []int64  // in the training texts
	train, held [][]int32
}

// numTrained is the number of words of the training texts.
func (c *corpus) numTrained() (n int64) {
	for _, k := range c.counts {
		n += k
	}
	return n
}

// goRoot is the folder of the Go installation, whose sources are the corpus.
func goRoot() (string, error) {
	if root := os.Getenv("GOROOT"); root != "" {
		return root, nil
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if root := string(bytes.TrimSpace(out)); err == nil && root != "" {
		return root, nil
	}
	return "", errors.New("word2vec: no Go installation was found: name a folder with Go sources with -corpus DIR")
}

// readCorpus reads Go files below dir, in an order that the seed gives, until they have
// maxWords words. A share of the files is held out.
func readCorpus(dir string, maxWords, minCount int, seed uint64) (*corpus, error) {
	root, err := filepath.EvalSymlinks(dir) // a Go installation may be one
	if err != nil {
		return nil, fmt.Errorf("word2vec: corpus: %w", err)
	}
	paths, err := goFiles(root)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
	var (
		texts [][]int32
		ids   = map[string]int32{}
		names []string
		total int
	)
	for _, path := range paths {
		if total >= maxWords {
			break
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("word2vec: corpus: %w", err)
		}
		var text []int32
		for word := range words(source) {
			id, ok := ids[word]
			if !ok {
				id = int32(len(names))
				ids[word] = id
				names = append(names, word)
			}
			text = append(text, id)
		}
		texts = append(texts, text[:min(len(text), maxWords-total)])
		total += len(texts[len(texts)-1])
	}
	return newCorpus(texts, names, minCount)
}

// goFiles are the Go files below dir. What tests read is no program, and vendored packages
// are there more than once.
func goFiles(dir string) (paths []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "vendor"):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		info, err := d.Info()
		if err == nil && info.Size() <= maxFileBytes {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("word2vec: corpus: %w", err)
	}
	if len(paths) < 2 {
		return nil, fmt.Errorf("word2vec: corpus: %d Go files in %s, want 2 or more", len(paths), dir)
	}
	return paths, nil
}

// words yields the identifiers and keywords of a Go source, in their order. A source that
// does not parse has words all the same.
func words(source []byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		file := token.NewFileSet().AddFile("", -1, len(source))
		var s scanner.Scanner
		s.Init(file, source, func(token.Position, string) {}, 0)
		for {
			_, tok, literal := s.Scan()
			if tok == token.EOF {
				return
			}
			if (tok == token.IDENT || tok.IsKeyword()) && !yield(literal) {
				return
			}
		}
	}
}

// newCorpus holds some of the texts out, and keeps the words that the others have minCount
// times. It changes the texts.
func newCorpus(texts [][]int32, names []string, minCount int) (*corpus, error) {
	numHeld := max(1, int(heldOutShare*float64(len(texts))))
	c := &corpus{held: texts[:min(numHeld, len(texts))], train: texts[min(numHeld, len(texts)):]}
	counts := make([]int64, len(names))
	for _, text := range c.train {
		for _, id := range text {
			counts[id]++
		}
	}
	order := make([]int32, 0, len(names))
	for id, n := range counts {
		if n >= int64(minCount) {
			order = append(order, int32(id))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(names[a], names[b]))
	})
	if len(order) < 2 {
		return nil, fmt.Errorf("word2vec: corpus: %d words occur %d times in %d files, want 2 or more", len(order), minCount, len(texts))
	}
	renamed := slices.Repeat([]int32{-1}, len(names))
	for i, id := range order {
		renamed[id] = int32(i)
		c.words = append(c.words, names[id])
		c.counts = append(c.counts, counts[id])
	}
	for t, text := range texts {
		kept := text[:0]
		for _, id := range text {
			if renamed[id] >= 0 {
				kept = append(kept, renamed[id])
			}
		}
		texts[t] = kept // in c.held and c.train: they are parts of texts
	}
	return c, nil
}
