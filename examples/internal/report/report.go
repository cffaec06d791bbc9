package report

import (
	"errors"
	"fmt"
	"time"
)

// ServerCount says how many parameter servers there were from a moment on.
type ServerCount struct {
	// At is the time since the start of the run.
	At time.Duration
	// Count is the number of servers, from At until the next entry.
	Count int
}

// Migration is one move of a shard that was committed.
type Migration struct {
	// Shard is the index of the shard.
	Shard uint32
	// From and To name the servers.
	From, To string
	// Bytes is the size of what was moved.
	Bytes int64
	// Freeze is the time in which no push to the shard was acknowledged.
	Freeze time.Duration
	// Total is the time from the first block sent to the release by the source.
	Total time.Duration
}

// Report is the result of a training run. The zero value is a valid report of
// a run in which nothing happened. Its lists belong to the caller.
type Report struct {
	// TestAccuracy is the share of test images labelled correctly, 0 to 1.
	TestAccuracy float64
	// Wall is the duration of the whole run.
	Wall time.Duration
	// Servers lists the changes of the number of servers, in order of time.
	Servers []ServerCount
	// Migrations lists the moves of shards, in order of their commit.
	Migrations []Migration

	// ServersKilled counts the servers that were ended without any warning, TakenOver
	// their shards that a follower took over.
	ServersKilled, TakenOver int
	// Recovery is the longest time from the end of such a server until every layer could
	// be read again.
	Recovery time.Duration

	// PushesSent counts the pushes that workers started, retries not counted.
	PushesSent int64
	// PushesAcknowledged counts those that a server confirmed to the worker.
	PushesAcknowledged int64
	// PushesApplied counts those that are in the parameters.
	PushesApplied int64
	// Lost counts acknowledged pushes that are not in the parameters.
	Lost int64
	// Doubled counts pushes that are in the parameters more than once.
	Doubled int64
}

// validate reports every value that no run can have.
func (r Report) validate() error {
	var faults []error
	if !(r.TestAccuracy >= 0 && r.TestAccuracy <= 1) { // also true for NaN
		faults = append(faults, fmt.Errorf("report: test accuracy is %v, want 0 to 1", r.TestAccuracy))
	}
	counts := []struct {
		name  string
		value int64
	}{
		{"wall time in ns", r.Wall.Nanoseconds()},
		{"servers killed", int64(r.ServersKilled)},
		{"shards taken over", int64(r.TakenOver)},
		{"recovery in ns", r.Recovery.Nanoseconds()},
		{"pushes sent", r.PushesSent},
		{"pushes acknowledged", r.PushesAcknowledged},
		{"pushes applied", r.PushesApplied},
		{"lost pushes", r.Lost},
		{"doubled pushes", r.Doubled},
	}
	for _, count := range counts {
		if count.value < 0 {
			faults = append(faults, fmt.Errorf("report: %s is %d, want 0 or more", count.name, count.value))
		}
	}
	return errors.Join(faults...)
}
