package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Commit makes the files that have been written a checkpoint: it checks the manifest, that
// its files are there with the lengths that it says, and that its parent is, and puts the
// manifest beside them. A checkpoint exists when Commit has returned without error; after an
// error it may exist if the storage failed. A name is used once. Files that the manifest does not
// list do no harm. The Ref is for Manifest.Parent of the next increment. Errors are *Error.
func Commit(ctx context.Context, s Storage, m Manifest) (Ref, error) {
	if err := m.validate(); err != nil {
		return Ref{}, &Error{m.Name, manifestName, "", err}
	}
	objects, err := s.List(ctx, m.Name+"/")
	if err != nil {
		return Ref{}, &Error{m.Name, "", "", err}
	}
	if _, ok := sizeOf(objects, m.Name+"/"+manifestName); ok {
		return Ref{}, &Error{m.Name, manifestName, "", errors.New("the checkpoint exists already")}
	}
	for _, f := range m.Files {
		if size, ok := sizeOf(objects, m.Name+"/"+f.Name); !ok || size != f.Bytes {
			return Ref{}, fault(m.Name, f.Name, "", ErrDamaged, "%d bytes (found: %t), must be %d", size, ok, f.Bytes)
		}
	}
	if m.Parent != nil {
		if err := checkParent(ctx, s, &m); err != nil {
			return Ref{}, err
		}
	}
	text, digest, err := m.encode()
	if err != nil {
		return Ref{}, &Error{m.Name, manifestName, "", err}
	}
	err = s.Put(ctx, m.Name+"/"+manifestName, int64(len(text)), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
	if err != nil {
		return Ref{}, &Error{m.Name, manifestName, "", err}
	}
	return Ref{m.Name, digest}, nil
}

// checkParent opens what m is an increment to, as it will be opened with it.
func checkParent(ctx context.Context, s Storage, m *Manifest) error {
	parent, err := Open(ctx, s, m.Parent.Name)
	if err != nil {
		return &Error{m.Name, "", "increment to " + m.Parent.Name, err}
	}
	if parent.Ref() != *m.Parent {
		return fault(m.Name, "", "", ErrDamaged, "it is an increment to %v, there is %v", *m.Parent, parent.Ref())
	}
	if len(parent.chain) >= MaxChain {
		return fault(m.Name, "", "", ErrMismatch, "its parent has %d ancestors, limit %d", len(parent.chain)-1, MaxChain-2)
	}
	return parent.chain[0].sameCut(m)
}

// directory is what a storage holds: by number of checkpoint, its objects.
func directory(ctx context.Context, s Storage) (map[uint64][]Object, error) {
	objects, err := s.List(ctx, namePrefix)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	found := make(map[uint64][]Object)
	for _, o := range objects {
		name, _, _ := strings.Cut(o.Name, "/")
		if number, err := numberOf(name); err == nil {
			found[number] = append(found[number], o)
		}
	}
	return found, nil
}

// committed reports whether these objects are those of a checkpoint.
func committed(number uint64, objects []Object) bool {
	_, ok := sizeOf(objects, nameOf(number)+"/"+manifestName)
	return ok
}

// Next returns a name for the next checkpoint: that of the highest number in the storage,
// also of an unfinished one, plus one.
func Next(ctx context.Context, s Storage) (string, error) {
	found, err := directory(ctx, s)
	if err != nil {
		return "", err
	}
	next := uint64(1)
	for number := range found {
		next = max(next, number+1)
	}
	return nameOf(next), nil
}

// List returns the names of the checkpoints in the storage, the oldest first. It does not
// look into them.
func List(ctx context.Context, s Storage) ([]string, error) {
	found, err := directory(ctx, s)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, number := range slices.Sorted(maps.Keys(found)) {
		if committed(number, found[number]) {
			names = append(names, nameOf(number))
		}
	}
	return names, nil
}

// Latest opens the newest checkpoint that Open finds whole, of those older than the one named
// before, or of all when before is empty. skipped says why newer ones were passed over. Open
// does not see every damage: who meets ErrDamaged later asks for the one before that. Latest
// does not pass over a checkpoint that a newer version of this module wrote, nor one that the
// storage fails to read, because training would go back without anybody knowing. The error
// wraps ErrNotFound when there is none.
func Latest(ctx context.Context, s Storage, before string) (c *Checkpoint, skipped []error, err error) {
	names, err := List(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if before != "" {
		limit, err := numberOf(before)
		if err != nil {
			return nil, nil, err
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			number, err := numberOf(name)
			return err != nil || number >= limit
		})
	}
	for _, name := range slices.Backward(names) {
		c, err := Open(ctx, s, name)
		if err == nil {
			return c, skipped, nil
		}
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotFound) {
			return nil, skipped, err
		}
		skipped = append(skipped, err)
	}
	return nil, skipped, errors.Join(append([]error{fmt.Errorf("checkpoint: %w: no whole checkpoint among %d", ErrNotFound, len(names))}, skipped...)...)
}

// Prune removes what is older than the newest whole checkpoint and not needed by the keep (at
// least 1) newest whole ones: checkpoints, damaged ones, unfinished ones, and what is left of
// interrupted writes. A checkpoint that a kept increment is put together from is kept. Nothing
// is removed when none is whole. It may be interrupted and repeated. Nobody should be reading
// what it removes: pass a keep above the number of checkpoints that may still be opened.
func Prune(ctx context.Context, s Storage, keep int) (removed []string, err error) {
	if keep < 1 {
		return nil, fmt.Errorf("checkpoint: %d checkpoints to keep, at least 1", keep)
	}
	found, err := directory(ctx, s)
	if err != nil {
		return nil, err
	}
	needed := make(map[uint64]bool)
	newest, whole := uint64(0), 0
	numbers := slices.Sorted(maps.Keys(found))
	for _, number := range slices.Backward(numbers) {
		if whole == keep {
			break
		}
		if !committed(number, found[number]) {
			continue
		}
		c, err := Open(ctx, s, nameOf(number))
		if errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		newest = max(newest, number)
		whole++
		for _, l := range c.chain {
			n, err := numberOf(l.Name)
			if err != nil {
				return nil, err
			}
			needed[n] = true
		}
	}
	for _, number := range slices.Backward(numbers) { // increments before what they need
		if number > newest {
			continue
		}
		gone, err := clean(ctx, s, number, found[number], needed[number])
		if gone {
			removed = append(removed, nameOf(number))
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// clean removes a checkpoint, its manifest first; or, when it is needed, what is left of
// interrupted writes. gone says that it does not exist any longer.
func clean(ctx context.Context, s Storage, number uint64, objects []Object, needed bool) (gone bool, err error) {
	name := nameOf(number)
	if !needed {
		if err := s.Remove(ctx, name+"/"+manifestName); err != nil {
			return false, &Error{name, manifestName, "", err}
		}
	}
	for _, o := range objects {
		if needed && !strings.HasSuffix(o.Name, PartialSuffix) {
			continue
		}
		if err := s.Remove(ctx, o.Name); err != nil {
			return !needed, &Error{name, strings.TrimPrefix(o.Name, name+"/"), "", err}
		}
	}
	return !needed, nil
}
