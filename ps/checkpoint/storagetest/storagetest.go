package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/stretchr/testify/require"
)

const patience = 60 * time.Second

// Run tests the storages that open makes. open may register clean-ups with t.
func Run(t *testing.T, open func(t *testing.T) checkpoint.Storage) {
	for name, test := range map[string]func(*testing.T, context.Context, checkpoint.Storage){
		"PutAndRead":     testPutAndRead,
		"Large":          testLarge,
		"Empty":          testEmpty,
		"Replace":        testReplace,
		"NotFound":       testNotFound,
		"ReadPastTheEnd": testReadPastTheEnd,
		"WriterFails":    testWriterFails,
		"WrongSize":      testWrongSize,
		"NotBeforeEnd":   testNotBeforeEnd,
		"List":           testList,
		"Remove":         testRemove,
		"Names":          testNames,
		"Context":        testContext,
		"Concurrent":     testConcurrent,
		"Checkpoint":     testCheckpoint,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			test(t, ctx, open(t))
		})
	}
}

func put(t *testing.T, ctx context.Context, s checkpoint.Storage, name string, content []byte) {
	t.Helper()
	require.NoError(t, putPieces(ctx, s, name, content))
}

// putPieces stores content in pieces of several lengths.
func putPieces(ctx context.Context, s checkpoint.Storage, name string, content []byte) error {
	return s.Put(ctx, name, int64(len(content)), func(w io.Writer) error {
		rest := content
		for n := 1; len(rest) > 0; n = 7*n + 1 {
			n = min(n, len(rest))
			if written, err := w.Write(rest[:n]); err != nil || written != n {
				return fmt.Errorf("%d of %d bytes written: %w", written, n, err)
			}
			rest = rest[n:]
		}
		return nil
	})
}

func read(t *testing.T, ctx context.Context, s checkpoint.Storage, name string, offset int64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	require.NoError(t, s.Read(ctx, name, offset, p))
	return p
}

func list(t *testing.T, ctx context.Context, s checkpoint.Storage, prefix string) []checkpoint.Object {
	t.Helper()
	objects, err := s.List(ctx, prefix)
	require.NoError(t, err)
	return objects
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // it never fails
	return b
}

func testPutAndRead(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	content := random(3 << 20)
	put(t, ctx, s, "a/b", content)
	require.Equal(t, content, read(t, ctx, s, "a/b", 0, len(content)))
	for _, r := range [][2]int{{0, 0}, {0, 1}, {1, 2}, {1<<20 - 1, 2}, {len(content) - 1, 1}, {77, 1 << 20}} {
		require.Equal(t, content[r[0]:r[0]+r[1]], read(t, ctx, s, "a/b", int64(r[0]), r[1]), "%v", r)
	}
}

func testLarge(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	content := random(40<<20 + 13)
	put(t, ctx, s, "large", content)
	require.Equal(t, []checkpoint.Object{{Name: "large", Bytes: int64(len(content))}}, list(t, ctx, s, ""))
	const piece = 3 << 20
	for at := 0; at < len(content); at += piece {
		n := min(piece, len(content)-at)
		require.True(t, bytes.Equal(content[at:at+n], read(t, ctx, s, "large", int64(at), n)), "at %d", at)
	}
}

func testEmpty(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	put(t, ctx, s, "a/empty", nil)
	require.Equal(t, []checkpoint.Object{{Name: "a/empty"}}, list(t, ctx, s, "a/"))
	require.ErrorIs(t, s.Read(ctx, "a/empty", 0, make([]byte, 1)), io.ErrUnexpectedEOF)
}

func testReplace(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	put(t, ctx, s, "a", []byte("first"))
	put(t, ctx, s, "a", []byte("the second"))
	require.Equal(t, "the second", string(read(t, ctx, s, "a", 0, 10)))
	require.Equal(t, []checkpoint.Object{{Name: "a", Bytes: 10}}, list(t, ctx, s, ""))
}

func testNotFound(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	require.ErrorIs(t, s.Read(ctx, "a/b", 0, make([]byte, 1)), checkpoint.ErrNotFound)
	put(t, ctx, s, "a/b", []byte("x"))
	require.ErrorIs(t, s.Read(ctx, "a/c", 0, make([]byte, 1)), checkpoint.ErrNotFound)
}

func testReadPastTheEnd(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	put(t, ctx, s, "a", []byte("12345"))
	for _, r := range [][2]int{{0, 6}, {4, 2}, {5, 1}, {6, 1}, {1 << 40, 9}} {
		err := s.Read(ctx, "a", int64(r[0]), make([]byte, r[1]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%v", r)
		require.NotErrorIs(t, err, checkpoint.ErrNotFound)
	}
}

// testWriterFails ends a Put at several lengths with an error of the writer's own, which comes
// back and leaves nothing behind.
func testWriterFails(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	reason := errors.New("reason")
	put(t, ctx, s, "old", []byte("old"))
	for _, name := range []string{"new", "old"} {
		for _, n := range []int{0, 1, 1 << 20, 20 << 20} {
			err := s.Put(ctx, name, 40<<20, func(w io.Writer) error {
				if _, err := w.Write(make([]byte, n)); err != nil {
					return err
				}
				return reason
			})
			require.ErrorIs(t, err, reason)
			require.Equal(t, []checkpoint.Object{{Name: "old", Bytes: 3}}, list(t, ctx, s, ""), "after %d bytes", n)
		}
	}
}

func testWrongSize(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	for _, c := range []struct {
		announced int64
		written   int
	}{{0, 1}, {1, 0}, {10, 9}, {10, 11}, {20 << 20, 20<<20 + 1}, {20<<20 + 1, 20 << 20}} {
		err := s.Put(ctx, "a", c.announced, func(w io.Writer) error {
			_, err := w.Write(make([]byte, c.written))
			return err
		})
		require.Error(t, err, "%+v", c)
		require.Empty(t, list(t, ctx, s, ""), "%+v", c)
	}
}

// testNotBeforeEnd looks for the object while it is being written.
func testNotBeforeEnd(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	const size = 20 << 20
	require.NoError(t, s.Put(ctx, "a", size, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, size)); err != nil {
			return err
		}
		require.ErrorIs(t, s.Read(ctx, "a", 0, make([]byte, 1)), checkpoint.ErrNotFound)
		for _, o := range list(t, ctx, s, "") {
			require.True(t, strings.HasSuffix(o.Name, checkpoint.PartialSuffix), o.Name)
		}
		return nil
	}))
	require.Equal(t, []checkpoint.Object{{Name: "a", Bytes: size}}, list(t, ctx, s, ""))
}

func testList(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	require.Empty(t, list(t, ctx, s, ""))
	require.Empty(t, list(t, ctx, s, "a/"))
	for i, name := range []string{"b/2", "a/1", "b/10", "b-1", "b.c", "bb/x", "b/1"} {
		put(t, ctx, s, name, make([]byte, i))
	}
	require.Equal(t, []checkpoint.Object{{Name: "b/1", Bytes: 6}, {Name: "b/10", Bytes: 2}, {Name: "b/2", Bytes: 0}}, list(t, ctx, s, "b/"))
	require.Equal(t, []checkpoint.Object{{Name: "b/1", Bytes: 6}, {Name: "b/10", Bytes: 2}}, list(t, ctx, s, "b/1"))
	var names []string
	for _, o := range list(t, ctx, s, "") {
		names = append(names, o.Name)
	}
	require.Equal(t, []string{"a/1", "b-1", "b.c", "b/1", "b/10", "b/2", "bb/x"}, names)
	require.Empty(t, list(t, ctx, s, "c"))
}

func testRemove(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	put(t, ctx, s, "a/b/c", []byte("x"))
	put(t, ctx, s, "a/d", []byte("y"))
	require.NoError(t, s.Remove(ctx, "a/b/c"))
	require.NoError(t, s.Remove(ctx, "a/b/c"), "it is gone already")
	require.ErrorIs(t, s.Read(ctx, "a/b/c", 0, make([]byte, 1)), checkpoint.ErrNotFound)
	require.Equal(t, []checkpoint.Object{{Name: "a/d", Bytes: 1}}, list(t, ctx, s, ""))
	put(t, ctx, s, "a/b/c", []byte("again"))
	require.Equal(t, "again", string(read(t, ctx, s, "a/b/c", 0, 5)))
	require.NoError(t, s.Remove(ctx, "none"+checkpoint.PartialSuffix))
}

func testNames(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	long := strings.Repeat("x", checkpoint.MaxFileNameBytes)
	longest := strings.Repeat(long[:127]+"/", checkpoint.MaxObjectBytes/128-1) + long
	put(t, ctx, s, longest, []byte("x"))
	require.Equal(t, []checkpoint.Object{{Name: longest, Bytes: 1}}, list(t, ctx, s, ""))
	require.NoError(t, s.Remove(ctx, longest))
	for _, name := range []string{
		"", "/", "a/", "/a", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".a", `a\b`, "a b", "a:b", "a\x00b", "ä",
		long + "x", longest + "/x", "a" + checkpoint.PartialSuffix,
	} {
		require.Error(t, s.Put(ctx, name, 0, func(io.Writer) error { return nil }), "%q", name)
		require.Error(t, s.Read(ctx, name, 0, nil), "%q", name)
		if name != "a"+checkpoint.PartialSuffix {
			require.Error(t, s.Remove(ctx, name), "%q", name)
		}
	}
	require.Empty(t, list(t, ctx, s, ""))
}

func testContext(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	put(t, ctx, s, "a", []byte("x"))
	const size = 20 << 20
	ended, cancel := context.WithCancel(ctx)
	err := s.Put(ended, "b", size, func(w io.Writer) error {
		if _, err := w.Write(make([]byte, size-1)); err != nil {
			return err
		}
		cancel()
		_, err := w.Write(make([]byte, 1))
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []checkpoint.Object{{Name: "a", Bytes: 1}}, list(t, ctx, s, ""), "nothing is left behind")
	require.ErrorIs(t, s.Read(ended, "a", 0, make([]byte, 1)), context.Canceled)
	_, err = s.List(ended, "")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Remove(ended, "a"), context.Canceled)
	require.Equal(t, "x", string(read(t, ctx, s, "a", 0, 1)))
}

func testConcurrent(t *testing.T, ctx context.Context, s checkpoint.Storage) {
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 4 {
				name, content := fmt.Sprintf("dir%d/%d", j, i), bytes.Repeat([]byte{byte(i)}, 100_000+i)
				got := make([]byte, len(content))
				err := errors.Join(putPieces(ctx, s, name, content), s.Read(ctx, name, 0, got), s.Remove(ctx, name))
				if err != nil || !bytes.Equal(content, got) {
					t.Errorf("%s: %v, equal: %t", name, err, bytes.Equal(content, got))
				}
			}
		})
	}
	group.Wait()
	require.Empty(t, list(t, ctx, s, ""))
}
