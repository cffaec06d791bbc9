package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sample() Report {
	return Report{
		TestAccuracy: 0.9787,
		Wall:         38*time.Second + 219*time.Millisecond,
		Servers: []ServerCount{
			{At: 0, Count: 1},
			{At: 4250 * time.Millisecond, Count: 2},
			{At: 9*time.Second + 123456*time.Microsecond, Count: 3},
			{At: 31 * time.Second, Count: 2},
		},
		Migrations: []Migration{
			{Shard: 1, From: "ps-0", To: "ps-1", Bytes: 802816, Freeze: 1234567 * time.Nanosecond, Total: 310 * time.Millisecond},
			{Shard: 12, From: "ps-1", To: "ps-0", Bytes: 40, Freeze: 300 * time.Microsecond, Total: 12 * time.Millisecond},
		},
		ServersKilled:      1,
		TakenOver:          7,
		Recovery:           81 * time.Millisecond,
		PushesSent:         2345,
		PushesAcknowledged: 2344,
		PushesApplied:      2345,
		Lost:               0,
		Doubled:            0,
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestTableGolden(t *testing.T) {
	for name, r := range map[string]Report{"full.txt": sample(), "empty.txt": {}} {
		var text bytes.Buffer
		require.NoError(t, r.WriteTable(&text))
		golden(t, name, text.Bytes())
	}
}

func TestJSONGolden(t *testing.T) {
	for name, r := range map[string]Report{"full.json": sample(), "empty.json": {}} {
		path := filepath.Join(t.TempDir(), "out.json")
		require.NoError(t, r.WriteJSON(path))
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		golden(t, name, content)
	}
}

func TestJSONHasExactlyTheKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	require.NoError(t, sample().WriteJSON(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(content, &object))
	require.ElementsMatch(t, []string{
		"test_accuracy", "wall_seconds", "servers", "migrations", "servers_killed", "shards_taken_over", "recovery_ms",
		"pushes_acknowledged", "pushes_applied", "lost", "doubled",
	}, keys(object))
	require.ElementsMatch(t, []string{"seconds", "count"}, keys(object["servers"].([]any)[0].(map[string]any)))
	require.ElementsMatch(t, []string{"shard", "from", "to", "bytes", "freeze_ms", "total_ms"},
		keys(object["migrations"].([]any)[0].(map[string]any)))
}

func keys(object map[string]any) (names []string) {
	for name := range object {
		names = append(names, name)
	}
	return names
}

func TestWriteJSONReplacesWholeFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.json")
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<16), 0o600))
	require.NoError(t, sample().WriteJSON(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, json.Valid(content))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file is left")
}

func TestWriteJSONKeepsOldFileOnFault(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.json")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	r := sample()
	r.TestAccuracy = math.NaN()
	require.ErrorContains(t, r.WriteJSON(path), "test accuracy is NaN, want 0 to 1")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(content))
}

func TestWriteJSONNamesThePath(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "absent", "out.json"), dir} {
		err := sample().WriteJSON(path)
		require.ErrorContains(t, err, "report: write "+path)
		var fault *os.PathError
		require.ErrorAs(t, err, &fault)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWriteJSONLeavesADeviceInPlace(t *testing.T) {
	link := filepath.Join(t.TempDir(), "device")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	require.NoError(t, sample().WriteJSON(link))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
}

func TestValidateReportsEveryFault(t *testing.T) {
	err := Report{TestAccuracy: 1.5, Wall: -1, PushesSent: -2, Lost: -3}.WriteTable(&bytes.Buffer{})
	for _, text := range []string{
		"test accuracy is 1.5", "wall time in ns is -1", "pushes sent is -2", "lost pushes is -3, want 0 or more",
	} {
		require.ErrorContains(t, err, text)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func TestWriteTableReportsTheWriter(t *testing.T) {
	require.True(t, errors.Is(sample().WriteTable(brokenWriter{}), os.ErrClosed))
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567"} {
		require.Equal(t, want, grouped(n))
	}
}

func TestCheckFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	require.NoError(t, CheckFile(path))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries, "nothing is left")
	require.ErrorContains(t, CheckFile(dir), "it is a folder")
	require.ErrorContains(t, CheckFile(filepath.Join(dir, "none", "result.json")), "none")
	require.NoError(t, CheckFile(os.DevNull))
}
