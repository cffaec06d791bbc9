package report

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"
)

type jsonReport struct {
	TestAccuracy       float64           `json:"test_accuracy"`
	WallSeconds        float64           `json:"wall_seconds"`
	Servers            []jsonServerCount `json:"servers"`
	Migrations         []jsonMigration   `json:"migrations"`
	ServersKilled      int               `json:"servers_killed"`
	TakenOver          int               `json:"shards_taken_over"`
	RecoveryMS         float64           `json:"recovery_ms"`
	PushesAcknowledged int64             `json:"pushes_acknowledged"`
	PushesApplied      int64             `json:"pushes_applied"`
	Lost               int64             `json:"lost"`
	Doubled            int64             `json:"doubled"`
}

type jsonServerCount struct {
	Seconds float64 `json:"seconds"`
	Count   int     `json:"count"`
}

type jsonMigration struct {
	Shard    uint32  `json:"shard"`
	From     string  `json:"from"`
	To       string  `json:"to"`
	Bytes    int64   `json:"bytes"`
	FreezeMS float64 `json:"freeze_ms"`
	TotalMS  float64 `json:"total_ms"`
}

// WriteJSON writes the report to the file path as one JSON object. The keys are
// test_accuracy, wall_seconds, servers (seconds, count), migrations (shard,
// from, to, bytes, freeze_ms, total_ms), servers_killed, shards_taken_over, recovery_ms,
// pushes_acknowledged, pushes_applied, lost and doubled; the lists are never null. Seconds and milliseconds are
// rounded to three digits.
//
// A reader sees the old file or the whole new one, never a part. Only a path
// that is there and not a regular file (a pipe, a device, a link) is written in
// place. The error names the path, or the value that no run can have.
func (r Report) WriteJSON(path string) error {
	if err := r.validate(); err != nil {
		return err
	}
	return WriteObject(path, r.toJSON())
}

// WriteObject writes any value to the file path as indented JSON, in the way of
// WriteJSON, and nothing if path is empty. The error names the path, or says why the value
// cannot be encoded.
func WriteObject(path string, v any) error {
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("report: encode: %w", err)
	}
	if err := writeAtomically(path, append(content, '\n')); err != nil {
		return fmt.Errorf("report: write %s: %w", path, err)
	}
	return nil
}

// CheckFile reports whether the file path could be written now, without changing
// what is there. An empty path is fine: nothing is to be written. The error names the path.
func CheckFile(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("report: write %s: it is a folder", path)
	case err == nil && !info.Mode().IsRegular():
		return nil // to open a pipe waits for its reader
	}
	file, err := createBeside(path)
	if err != nil {
		return fmt.Errorf("report: write %s: %w", path, err)
	}
	_ = file.Close() // nothing was written
	if err := os.Remove(file.Name()); err != nil {
		return fmt.Errorf("report: write %s: %w", path, err)
	}
	return nil
}

// createBeside makes the file that becomes path when it is complete.
func createBeside(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
}

func (r Report) toJSON() jsonReport {
	out := jsonReport{
		TestAccuracy:       r.TestAccuracy,
		WallSeconds:        inUnits(r.Wall, time.Second),
		Servers:            make([]jsonServerCount, 0, len(r.Servers)),
		Migrations:         make([]jsonMigration, 0, len(r.Migrations)),
		ServersKilled:      r.ServersKilled,
		TakenOver:          r.TakenOver,
		RecoveryMS:         inUnits(r.Recovery, time.Millisecond),
		PushesAcknowledged: r.PushesAcknowledged,
		PushesApplied:      r.PushesApplied,
		Lost:               r.Lost,
		Doubled:            r.Doubled,
	}
	for _, s := range r.Servers {
		out.Servers = append(out.Servers, jsonServerCount{Seconds: inUnits(s.At, time.Second), Count: s.Count})
	}
	for _, m := range r.Migrations {
		out.Migrations = append(out.Migrations, jsonMigration{
			Shard: m.Shard, From: m.From, To: m.To, Bytes: m.Bytes,
			FreezeMS: inUnits(m.Freeze, time.Millisecond), TotalMS: inUnits(m.Total, time.Millisecond),
		})
	}
	return out
}

// inUnits converts d, rounded to three digits.
func inUnits(d, unit time.Duration) float64 {
	return math.Round(float64(d)/float64(unit)*1000) / 1000
}

func writeAtomically(path string, content []byte) error {
	const mode fs.FileMode = 0o644
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, content, mode)
	}
	file, err := createBeside(path)
	if err != nil {
		return err
	}
	if err := fill(file, content, mode); err != nil {
		// The first fault is the one to report.
		_ = os.Remove(file.Name())
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		_ = os.Remove(file.Name())
		return err
	}
	return nil
}

// fill writes content through to the disk and closes the file in any case.
func fill(file *os.File, content []byte, mode fs.FileMode) error {
	_, err := file.Write(content)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
