package elastic

import (
	"fmt"
	"strings"
	"time"
)

// Reason is the code of a decision or of a rejection: it answers "why" and "why not".
type Reason uint8

// Reasons.
const (
	// Steady means that no condition holds.
	Steady Reason = iota
	// Load means that the signals crossed their thresholds for long enough.
	Load
	// Requested means that somebody asked for a number of servers.
	Requested
	// BelowMin means that fewer servers are up than the minimum.
	BelowMin
	// AboveMax means that more servers are up than the maximum.
	AboveMax
	// Dwelling means that the condition has not held for long enough.
	Dwelling
	// CoolingDown means that the last change was too recent.
	CoolingDown
	// WorkInFlight means that operators run or wait whose effect is not measured yet.
	WorkInFlight
	// AtMax means that the signals ask for more servers than the maximum.
	AtMax
	// AtMin means that the signals ask for fewer servers than the minimum.
	AtMin
	// WouldReverse means that the effect of the change would ask for its opposite.
	WouldReverse
	// NoSignal means that no server reports anything that can be used.
	NoSignal
	// NoShards means that the job has no shards yet.
	NoShards
	// BackingOff means that the same work failed a short time ago.
	BackingOff
	// MoveLimit means that as many moves run as may run at once.
	MoveLimit
	// InvalidSnapshot means that map, shards and servers contradict each other.
	InvalidSnapshot
	// NoRoom means that the servers that stay cannot hold the shards.
	NoRoom
	// OwnerDown means that a server that owns shards is down: what the others
	// report is not the load of the job.
	OwnerDown
)

// String returns the code used in logs.
func (r Reason) String() string {
	names := [...]string{
		"steady", "load", "requested", "below_min", "above_max", "dwelling", "cooling_down", "work_in_flight",
		"at_max", "at_min", "would_reverse", "no_signal", "no_shards", "backing_off", "move_limit", "invalid_snapshot", "no_room",
		"owner_down",
	}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Trigger is one comparison that led to a decision, for example
// "grad_latency=63ms > threshold=50ms".
type Trigger struct {
	Name      string // of the measurement, for example "grad_latency"
	Value     string // with its unit
	Relation  string // ">" , "<" or "="
	BoundName string // "threshold", "min", "max"; empty if there is no bound
	Bound     string // with its unit
}

// String renders the comparison.
func (t Trigger) String() string {
	if t.BoundName == "" {
		return t.Name + "=" + t.Value
	}
	return t.Name + "=" + t.Value + " " + t.Relation + " " + t.BoundName + "=" + t.Bound
}

func signalTrigger(s Signal, v float64, relation string, bound float64) Trigger {
	return Trigger{Name: s.String(), Value: s.Format(v), Relation: relation, BoundName: "threshold", Bound: s.Format(bound)}
}

func countTrigger(n int, relation, boundName string, bound int) Trigger {
	return Trigger{Name: "servers", Value: fmt.Sprint(n), Relation: relation, BoundName: boundName, Bound: fmt.Sprint(bound)}
}

// Rejection says why something was not done.
type Rejection struct {
	Subject string // what was not done, for example "move_shard 3 ps-0→ps-1"
	Reason  Reason
	Detail  string
}

// maxRejections bounds the rejections that one decision lists.
const maxRejections = 64

// Decision is what the policy made of one snapshot, with its inputs.
type Decision struct {
	// At is Snapshot.At.
	At time.Duration
	// From and To are the numbers of servers that take shards before and
	// after; they are equal if the number stays.
	From, To int
	// Reason says why it changes or why it stays.
	Reason Reason
	// Triggers are the comparisons that ask for a change, made or not.
	Triggers []Trigger
	// Readings are the signals as measured.
	Readings Readings
	// Rejected lists what was not done and why, at most 64 entries.
	Rejected []Rejection
}

// Scaled reports whether the number of servers changes.
func (d Decision) Scaled() bool { return d.From != d.To }

// String returns the line of the log:
//
//	[ElasticController] Scaled PS: 8→12 Trigger: grad_latency=63ms > threshold=50ms
//
// Several triggers are separated by ", ". A decision that keeps the number of
// servers says "Kept PS: 8 Reason: cooling_down" and the triggers if there are any.
func (d Decision) String() string {
	list := d.triggers()
	if d.Scaled() {
		return fmt.Sprintf("[ElasticController] Scaled PS: %d→%d Trigger: %s", d.From, d.To, list)
	}
	line := fmt.Sprintf("[ElasticController] Kept PS: %d Reason: %v", d.From, d.Reason)
	if list != "" {
		line += " Trigger: " + list
	}
	return line
}

func (d Decision) triggers() string {
	texts := make([]string, len(d.Triggers))
	for i, t := range d.Triggers {
		texts[i] = t.String()
	}
	return strings.Join(texts, ", ")
}

// why is the reason of the operators of the decision.
func (d Decision) why() string { return d.Reason.String() + ": " + d.triggers() }

func (d *Decision) reject(r Rejection) {
	if len(d.Rejected) < maxRejections {
		d.Rejected = append(d.Rejected, r)
	}
}
