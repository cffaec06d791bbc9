package federation

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/elastic/sched"
)

const (
	// MaxCopies is the greatest number of jobs of one site.
	MaxCopies = 1024
	// MaxSites is the greatest number of sites.
	MaxSites = 1024
	// MaxStarts is the greatest number of jobs that one order starts.
	MaxStarts = 32
)

var (
	// ErrUnknown is wrapped by errors about a job that Home does not have.
	ErrUnknown = errors.New("federation: not known")
	// ErrExists is wrapped by errors about a job that Home has already.
	ErrExists = errors.New("federation: exists already")
)

// Config is the same for Home and all sites. The zero value is usable.
type Config struct {
	// Lease is how long a site may run a job without hearing from Home. Zero: 15 s.
	Lease time.Duration
	// Grace is the longest time that a site takes to stop a job, less than Lease. Zero: a
	// fifth of Lease.
	Grace time.Duration
	// Drift is how much faster or slower one clock may run than another, in thousandths.
	// Zero: 10.
	Drift int
	// Interval is the time between two reports of a site, and how long it waits for an
	// answer before the next. Zero: a fifth of Lease.
	Interval time.Duration
	// Retry is how long a job rests that every site has refused. Zero: Lease.
	Retry time.Duration
}

const maxDrift = 500

// WithDefaults fills in what is zero. The error names every field that is out of bounds.
func (c Config) WithDefaults() (Config, error) {
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Grace = cmp.Or(c.Grace, c.Lease/5)
	c.Drift = cmp.Or(c.Drift, 10)
	c.Interval = cmp.Or(c.Interval, c.Lease/5)
	c.Retry = cmp.Or(c.Retry, c.Lease)
	var errs []error
	if c.Lease < time.Millisecond || c.Lease > 24*time.Hour {
		errs = append(errs, fmt.Errorf("federation: Lease %v: want 1ms to 24h", c.Lease))
	}
	if c.Grace < 0 || c.Grace >= c.Lease {
		errs = append(errs, fmt.Errorf("federation: Grace %v: want 0 to less than Lease, %v", c.Grace, c.Lease))
	}
	if c.Drift < 0 || c.Drift > maxDrift {
		errs = append(errs, fmt.Errorf("federation: Drift %d: want 0 to %d", c.Drift, maxDrift))
	}
	if c.Interval < 0 || c.Interval >= c.Lease-c.Grace {
		errs = append(errs, fmt.Errorf("federation: Interval %v: want 0 to less than Lease without Grace, %v", c.Interval, c.Lease-c.Grace))
	}
	if c.Retry < 0 {
		errs = append(errs, fmt.Errorf("federation: Retry %v: want >= 0", c.Retry))
	}
	return c, errors.Join(errs...)
}

// hold is how long Home waits until a lease must have ended by the clock of a site.
func (c Config) hold() time.Duration { return c.Lease + c.Lease*time.Duration(c.Drift)/1000 }

// Job is what a site runs whole or not at all.
type Job struct {
	sched.Gang
	// Prefer names the sites that are asked first, in this order.
	Prefer []string
}

func (j Job) validate() error {
	var errs []error
	if j.ID == "" {
		errs = append(errs, errors.New("ID is empty"))
	}
	if n := len(j.Tasks); n < 1 || n > sched.MaxGang {
		errs = append(errs, fmt.Errorf("%d Tasks: want 1 to %d", n, sched.MaxGang))
	}
	for _, t := range j.Tasks {
		errs = append(errs, t.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("federation: job %q: %w", j.ID, err)
	}
	return nil
}

// devices is what the job takes of devices.
func (j Job) devices() sched.Milli {
	var sum sched.Milli
	for _, t := range j.Tasks {
		sum += sched.Milli(t.Devices) * cmp.Or(t.Share, sched.Whole)
	}
	return sum
}

// priority is the highest of its tasks.
func (j Job) priority() int {
	highest := 0
	for _, t := range j.Tasks {
		highest = max(highest, t.Priority)
	}
	return highest
}

// Copy is a job on a site, since the epoch at which it was given there. Epochs rise with every
// job that is given to a site.
type Copy struct {
	Job   string
	Epoch uint64
}

// State is what became of a copy on its site.
type State uint8

// The states.
const (
	Running State = iota // or being started, or being stopped
	Refused              // it found no room there, or has lost it, and has stopped
	Ended                // it is done
)

// Held is a copy that a site tells of.
type Held struct {
	Copy
	State State
}

// Report is what a site says.
type Report struct {
	Site        string
	Incarnation uint64
	Term        uint64        // of the Home whose order was obeyed last
	Sent        time.Duration // by the clock of the site
	Copies      []Held
	Free        sched.Milli // of devices
}

// Order answers a report.
type Order struct {
	Site        string
	Incarnation uint64
	Term        uint64        // of Home
	Sent        time.Duration // of the report
	Keep        []Copy        // whose lease is renewed; others end
	Start       []Start
}

// Start is a copy that the site may start.
type Start struct {
	Copy
	Gang sched.Gang
}

// Record is what Home has to remember of a job beyond its own life.
type Record struct {
	Job   Job
	Epoch uint64
	Site  string // to which it was given last, empty if it never was
	// Cancelled says that it goes when its site does not run it any more.
	Cancelled bool
	// Over says that the record can go.
	Over bool
}
