package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Folder is a Storage in a folder of a file system, local or shared by all servers. Its
// value is the path; the folder is created with the first object. Objects are written under
// a temporary name, forced to the disk (fsync) and renamed; the renaming is forced to the
// disk as well. On Linux the disk begins while an object is still being written.
type Folder string

var _ Storage = Folder("")

// Put implements Storage. A full disk gives an error that wraps the system's (ENOSPC).
func (f Folder) Put(ctx context.Context, name string, size int64, write func(io.Writer) error) (err error) {
	if err := CheckObject(name); err != nil {
		return err
	}
	target := f.at(name)
	partial := target + "." + strconv.FormatUint(rand.Uint64(), 36) + PartialSuffix
	file, err := f.create(path.Dir(name), partial)
	if err != nil {
		return fmt.Errorf("checkpoint: folder: %w", err)
	}
	w := &boundedWriter{ctx: ctx, w: &eagerFile{file: file}, left: size}
	err = write(w)
	if err == nil && w.left != 0 {
		err = fmt.Errorf("checkpoint: folder: %s: %d bytes fewer than the %d announced", name, w.left, size)
	}
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = os.Rename(partial, target)
	}
	if err != nil {
		if removed := os.Remove(partial); removed != nil && !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return fmt.Errorf("checkpoint: folder: %s: %w", name, err)
	}
	if err := syncDir(filepath.Dir(target)); err != nil {
		return fmt.Errorf("checkpoint: folder: %s: %w", name, err)
	}
	return nil
}

// create makes a file in the directory of that name, which a Remove of the last object
// there may take away in between.
func (f Folder) create(dir, file string) (*os.File, error) {
	for try := 1; ; try++ {
		if err := f.makeDir(dir); err != nil {
			return nil, err
		}
		created, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || try == 10 {
			return created, err
		}
	}
}

// at is the path of the object or directory of that name.
func (f Folder) at(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

// makeDir makes the directory of that name within the folder, and those above it, and
// forces the new entries to the disk.
func (f Folder) makeDir(name string) error {
	dir := f.at(name)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for ; name != "."; name = path.Dir(name) {
		if err := syncDir(f.at(path.Dir(name))); err != nil {
			return err
		}
	}
	return syncDir(filepath.Dir(f.at(".")))
}

// syncDir forces the entries of a directory to the disk. Windows keeps them there by itself
// and opens no directory for that.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}

// writebackBytes is how much of a file is written until the disk is told to begin with it.
const writebackBytes = 8 << 20

// eagerFile is a file whose bytes go to the disk while more are written, so that the fsync at
// its end finds little to do.
type eagerFile struct {
	file           *os.File
	begun, written int64
}

// Write implements io.Writer.
func (e *eagerFile) Write(p []byte) (int, error) {
	n, err := e.file.Write(p)
	e.written += int64(n)
	if e.written-e.begun >= writebackBytes {
		startWriteback(e.file, e.begun, e.written-e.begun)
		e.begun = e.written
	}
	return n, err
}

// boundedWriter writes at most left bytes, and nothing when ctx has ended. It lives no
// longer than the call that ctx belongs to.
type boundedWriter struct {
	ctx  context.Context
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (b *boundedWriter) Write(p []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	if int64(len(p)) > b.left {
		return 0, fmt.Errorf("checkpoint: object has %d bytes more than announced", int64(len(p))-b.left)
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}

// Read implements Storage.
func (f Folder) Read(ctx context.Context, name string, offset int64, p []byte) error {
	if err := CheckObject(name); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	file, err := os.Open(f.at(name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint: folder: %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: folder: %w", err)
	}
	defer file.Close()
	n, err := file.ReadAt(p, offset)
	switch {
	case n == len(p):
		return nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("checkpoint: folder: %s: %d bytes at %d: %w", name, len(p), offset, err)
}

// List implements Storage. It looks at the directory that prefix names only.
func (f Folder) List(ctx context.Context, prefix string) ([]Object, error) {
	list := []Object{}
	root := f.at(".")
	if dir := path.Dir(prefix + "x"); dir != "." {
		if err := CheckObject(dir); err != nil {
			return nil, err
		}
		root = f.at(dir)
	}
	err := filepath.WalkDir(root, func(at string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile, or was never there
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(f.at("."), at)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if !strings.HasPrefix(name, prefix) || CheckObject(strings.TrimSuffix(name, PartialSuffix)) != nil {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			list = append(list, Object{name, info.Size()})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("checkpoint: folder: %w", err)
	}
	slices.SortFunc(list, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Remove implements Storage. It removes directories that have become empty, too.
func (f Folder) Remove(ctx context.Context, name string) error {
	if err := CheckObject(strings.TrimSuffix(name, PartialSuffix)); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	err := os.Remove(f.at(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint: folder: %w", err)
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if os.Remove(f.at(dir)) != nil {
			break // it is not empty
		}
	}
	return nil
}
