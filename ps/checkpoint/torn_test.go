package checkpoint_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

// files lists the files of a folder, with their contents.
func files(t testing.TB, s checkpoint.Folder) map[string]string {
	t.Helper()
	found := make(map[string]string)
	require.NoError(t, filepath.WalkDir(string(s), func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			name, relErr := filepath.Rel(string(s), path)
			require.NoError(t, relErr)
			b, readErr := os.ReadFile(path)
			require.NoError(t, readErr)
			found[filepath.ToSlash(name)] = string(b)
		}
		return err
	}))
	return found
}

// threeSmall is a full checkpoint, one more, and an increment to that, in two files each.
func threeSmall(t testing.TB, model shard.Model) (checkpoint.Folder, *world) {
	t.Helper()
	s := checkpoint.Folder(t.TempDir())
	w := newWorld(t, model, 5, "m")
	w.mustSave(t, s, nil, 2)
	w.push()
	ref := w.mustSave(t, s, nil, 2)
	w.push()
	w.mustSave(t, s, &ref, 2)
	return s, w
}

// TestT27Torn cuts every file of the two newest checkpoints at every length, and flips a bit of every
// byte, another one in the next; with tables at every third. Never is the checkpoint taken for whole, and
// what is found instead is the newest one that does not need the file.
func TestT27Torn(t *testing.T) {
	t.Run("dense", func(t *testing.T) { testTorn(t, smallModel(), 1) })
	t.Run("sparse", func(t *testing.T) { testTorn(t, smallTables(), 3) }) // what reads both was torn everywhere
}

func testTorn(t *testing.T, model shard.Model, step int) {
	s, _ := threeSmall(t, model)
	if underRace { // it finds nothing here and takes ten times as long
		step = 7
	}
	for name, whole := range files(t, s) {
		dir, _, _ := strings.Cut(name, "/")
		if dir == "ckpt-00000001" {
			continue
		}
		good := map[string]string{"ckpt-00000002": "ckpt-00000001", "ckpt-00000003": "ckpt-00000002"}[dir]
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(string(s), name)
			check := func(what string, torn string) {
				require.NoError(t, os.WriteFile(path, []byte(torn), 0o600))
				for _, newest := range []string{dir, "ckpt-00000003"} {
					if err := openAll(t, s, newest); !errors.Is(err, checkpoint.ErrDamaged) {
						t.Fatalf("%s: %s opens with %v", what, newest, err)
					}
				}
				if found := latestGood(t, s); found != good {
					t.Fatalf("%s: the newest good checkpoint is %q, must be %q", what, found, good)
				}
			}
			for n := 0; n < len(whole); n += step {
				check(fmt.Sprintf("cut at %d", n), whole[:n])
			}
			check("longer", whole+"x")
			for at := 0; at < len(whole); at += step {
				torn := []byte(whole)
				torn[at] ^= 1 << (at % 8)
				check(fmt.Sprintf("bit %d of byte %d", at%8, at), string(torn))
			}
			require.NoError(t, os.WriteFile(path, []byte(whole), 0o600))
			require.Equal(t, "ckpt-00000003", latestGood(t, s), "it was the tearing")
		})
	}
}

// TestT27Missing takes single files away. A manifest that is missing means that there is no such
// checkpoint.
func TestT27Missing(t *testing.T) {
	s, _ := threeSmall(t, smallTables())
	for name, whole := range files(t, s) {
		path := filepath.Join(string(s), name)
		require.NoError(t, os.Remove(path))
		dir, file, _ := strings.Cut(name, "/")
		err := openAll(t, s, dir)
		if file == "manifest.json" {
			require.ErrorIs(t, err, checkpoint.ErrNotFound)
		} else {
			require.ErrorIs(t, err, checkpoint.ErrDamaged)
			require.ErrorContains(t, err, name+": damaged: the file is missing")
		}
		want := map[string]string{"ckpt-00000001": "ckpt-00000003", "ckpt-00000002": "ckpt-00000001", "ckpt-00000003": "ckpt-00000002"}[dir]
		require.Equal(t, want, latestGood(t, s), name)
		require.NoError(t, os.WriteFile(path, []byte(whole), 0o600))
	}
}

// TestT27DamageMeanwhile cuts a file of the parent after the increment was opened: the shard whose
// values are there is refused, those whose values the increment has are not touched.
func TestT27DamageMeanwhile(t *testing.T) {
	t.Run("dense", func(t *testing.T) { testDamageMeanwhile(t, smallModel()) })
	t.Run("sparse", func(t *testing.T) { testDamageMeanwhile(t, smallTables()) })
}

func testDamageMeanwhile(t *testing.T, model shard.Model) {
	s, w := threeSmall(t, model)
	failed := 0
	c, err := checkpoint.Open(t.Context(), s, "ckpt-00000003")
	require.NoError(t, err)
	for id := range w.shards {
		name := fmt.Sprintf("ckpt-00000002/ps-%d.safetensors", id)
		require.NoError(t, os.Truncate(filepath.Join(string(s), name), 100))
		back := newWorld(t, w.model, 0, "m")
		newest, err := c.Shard(t.Context(), w.cut[id].ID)
		require.NoError(t, err)
		state, err := back.read(t.Context(), c, id)
		if len(newest.Blocks) > 0 {
			require.NoError(t, err)
			require.Equal(t, w.shards[id].applied, state.Applied)
			continue
		}
		require.ErrorIs(t, err, checkpoint.ErrDamaged)
		require.ErrorContains(t, err, name)
		failed++
	}
	require.Equal(t, 1, failed, "the increment has one shard of two")
}

// failing is a folder whose disk fails: the write that brings the bytes written to limit, and all
// after it, return the error.
type failing struct {
	checkpoint.Folder
	limit int64
	err   error
}

func (f *failing) Put(ctx context.Context, name string, size int64, write func(io.Writer) error) error {
	return f.Folder.Put(ctx, name, size, func(w io.Writer) error { return write(&failingWriter{w, f}) })
}

type failingWriter struct {
	w io.Writer
	f *failing
}

func (w *failingWriter) Write(p []byte) (int, error) {
	n := min(int64(len(p)), w.f.limit)
	w.f.limit -= n
	written, err := w.w.Write(p[:n])
	if err == nil && written < len(p) {
		err = w.f.err
	}
	return written, err
}

// TestT27FailingDisk fails a save after many numbers of bytes: the reason is reported, nothing is left
// but whole files, the earlier checkpoint is found, and the next save works.
func TestT27FailingDisk(t *testing.T) {
	folder := checkpoint.Folder(t.TempDir())
	w := newWorld(t, smallTables(), 5, "m")
	first := w.mustSave(t, folder, nil, 2)
	total := int64(0)
	for name, content := range files(t, folder) {
		if strings.HasPrefix(name, first.Name) {
			total += int64(len(content))
		}
	}
	before := openDescriptors(t)
	for n := int64(0); n < total; n += 11 {
		_, err := w.save(t.Context(), &failing{folder, n, syscall.ENOSPC}, nil, 2)
		require.ErrorIs(t, err, syscall.ENOSPC)
		var where *checkpoint.Error
		require.ErrorAs(t, err, &where)
		for name := range files(t, folder) {
			require.False(t, strings.HasSuffix(name, checkpoint.PartialSuffix), name)
		}
		require.NoError(t, os.RemoveAll(filepath.Join(string(folder), where.Checkpoint)))
	}
	_, err := w.save(t.Context(), &failing{folder, total - 1, syscall.ENOSPC}, nil, 2)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, before, openDescriptors(t))
	require.Equal(t, first.Name, latestGood(t, folder))
	next := w.mustSave(t, &failing{folder, total, syscall.ENOSPC}, nil, 2)
	require.Equal(t, next.Name, latestGood(t, folder))
	_, err = checkpoint.Prune(t.Context(), folder, 1)
	require.NoError(t, err)
	for name := range files(t, folder) {
		require.True(t, strings.HasPrefix(name, next.Name+"/"), "%s is left", name)
	}
}

// openDescriptors is the number of files that the process has open, 0 where it cannot be told.
func openDescriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		require.NotEqual(t, "linux", runtime.GOOS)
		return 0
	}
	return len(list)
}

// crashVariable makes the test binary a process that saves and is killed: its value is the folder.
const crashVariable = "ELASTICPS_TEST_CRASH"

// TestT27Crash kills a process with SIGKILL in the middle of a save: when a file has all its bytes and
// not yet its name, and when all files are there but the manifest.
func TestT27Crash(t *testing.T) {
	for _, moment := range []string{"file written", "manifest written", "not committed"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := checkpoint.Folder(t.TempDir())
			w := newWorld(t, smallModel(), 5, "m")
			first := w.mustSave(t, s, nil, 2)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestCrashingProcess$", "-test.v")
			child.Env = append(os.Environ(), crashVariable+"="+moment+"="+string(s))
			out, err := child.StdoutPipe()
			require.NoError(t, err)
			_, err = child.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, child.Start())
			lines := bufio.NewScanner(out)
			for lines.Scan() && lines.Text() != moment {
			}
			require.NoError(t, child.Process.Kill())
			require.Error(t, child.Wait())
			require.Equal(t, moment, lines.Text(), "the process has come to that moment")

			partial := 0
			for name := range files(t, s) {
				if strings.HasSuffix(name, checkpoint.PartialSuffix) {
					partial++
				}
			}
			require.Equal(t, moment != "not committed", partial == 1)
			require.Equal(t, first.Name, latestGood(t, s))
			next := w.mustSave(t, s, nil, 2)
			require.Equal(t, "ckpt-00000003", next.Name, "the name of the unfinished one is not used again")
			removed, err := checkpoint.Prune(t.Context(), s, 2)
			require.NoError(t, err)
			require.Equal(t, []string{"ckpt-00000002"}, removed)
			for name := range files(t, s) {
				require.False(t, strings.HasPrefix(name, "ckpt-00000002"), name)
			}
		})
	}
}

// TestCrashingProcess is the process that TestT27Crash kills.
func TestCrashingProcess(t *testing.T) {
	moment, dir, ok := strings.Cut(os.Getenv(crashVariable), "=")
	if !ok {
		t.Skip("it is a part of TestT27Crash")
	}
	s := &stopping{checkpoint.Folder(dir), map[string]string{"file written": "ps-1.safetensors", "manifest written": "manifest.json"}[moment], moment}
	w := newWorld(t, smallModel(), 6, "m")
	states := w.state(0, true)
	if moment != "not committed" {
		w.mustSave(t, s, nil, 2)
	}
	_, err := checkpoint.WriteFile(t.Context(), s, "ckpt-00000002", "ps-0.safetensors", []checkpoint.Shard{states}, w.write([]checkpoint.Shard{states}))
	require.NoError(t, err)
	s.stop()
}

// stopping is a folder that stops for good when the last byte of one file has been written.
type stopping struct {
	checkpoint.Folder
	file, moment string
}

func (s *stopping) stop() {
	fmt.Println("\n" + s.moment)
	_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the parent does, if that does not kill
	os.Exit(3)
}

func (s *stopping) Put(ctx context.Context, name string, size int64, write func(io.Writer) error) error {
	return s.Folder.Put(ctx, name, size, func(w io.Writer) error {
		err := write(w)
		if err == nil && strings.HasSuffix(name, "/"+s.file) {
			s.stop()
		}
		return err
	})
}
