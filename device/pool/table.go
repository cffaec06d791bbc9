package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/elasticps/elasticps/device"
)

const (
	maxTemplates = 64
	// minReportedPercent is how much of the memory that a table names a device has to report:
	// drivers keep a part for themselves (81,559 of 81,920 MiB on one model,
	// 21,525 of 24,576 on another).
	minReportedPercent = 85
)

// Template is one of the sizes in which devices of a model can be cut, such as
// vir05_1c_16g or 1g.10gb.
type Template struct {
	Name string
	// Milli is the computing time that it takes, 1 to 1,000.
	Milli int64
	// Bytes is the memory that it takes.
	Bytes int64
}

// Table is the templates of one model. It holds for devices of that very name and that much
// memory: models whose names begin alike are cut differently.
type Table struct {
	// Model is device.Device.Model to the letter.
	Model string
	// MemoryBytes is the memory of a whole device, as its maker states it.
	MemoryBytes int64
	Templates   []Template
}

// validate reports every fault of the table at once.
func (t Table) validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("pool: table of %q: "+format, append([]any{t.Model}, args...)...))
	}
	if t.Model == "" {
		fault("Model is empty")
	}
	if t.MemoryBytes < 1 || t.MemoryBytes > maxMemoryBytes {
		fault("MemoryBytes %d: want 1 to %d", t.MemoryBytes, int64(maxMemoryBytes))
	}
	if len(t.Templates) < 1 || len(t.Templates) > maxTemplates {
		fault("%d templates: want 1 to %d", len(t.Templates), maxTemplates)
	}
	seen := make(map[string]bool, len(t.Templates))
	for i, m := range t.Templates {
		if m.Name == "" || seen[m.Name] {
			fault("Templates[%d] %q: want a name of its own", i, m.Name)
		}
		seen[m.Name] = true
		if m.Milli < 1 || m.Milli > WholeMilli {
			fault("%s: Milli %d: want 1 to %d", m.Name, m.Milli, WholeMilli)
		}
		if m.Bytes < 0 || m.Bytes > t.MemoryBytes {
			fault("%s: Bytes %d: want 0 to the %d of the device", m.Name, m.Bytes, t.MemoryBytes)
		}
	}
	return errors.Join(errs...)
}

func validateTables(tables []Table) error {
	var errs []error
	seen := make(map[string]bool, len(tables))
	for _, t := range tables {
		errs = append(errs, t.validate())
		if seen[t.Model] {
			errs = append(errs, fmt.Errorf("pool: table of %q: there are two", t.Model))
		}
		seen[t.Model] = true
	}
	return errors.Join(errs...)
}

// tableOf returns the table of a device, nil if there is none. The error says that the
// device is not what the table is for: what the device reports counts, and a table for less
// or more memory would give out other amounts than the hardware cuts off.
func (c Config) tableOf(d device.Device) (*Table, error) {
	at := slices.IndexFunc(c.Tables, func(t Table) bool { return t.Model == d.Model })
	if at < 0 {
		return nil, nil
	}
	t := &c.Tables[at]
	has := d.MemoryBytes
	if has.Known && (has.Value > t.MemoryBytes || has.Value < t.MemoryBytes/100*minReportedPercent) {
		return nil, fmt.Errorf("pool: device %q: MemoryBytes %d: the table of %q is for %d (%d %% of it or more)",
			d.ID, has.Value, t.Model, t.MemoryBytes, minReportedPercent)
	}
	return t, nil
}

// cut returns what a request takes of the card: what it asks for, or of a card that is cut by
// templates the smallest one that has room for it, and the whole card if none has.
func (c *card) cut(r Request) Template {
	if c.table == nil || r.Bytes > c.bytes { // the latter fits nowhere on it
		return Template{Milli: r.Milli, Bytes: r.Bytes}
	}
	best := Template{Milli: WholeMilli, Bytes: c.bytes}
	for _, t := range c.table.Templates {
		if t.Milli >= r.Milli && t.Bytes >= r.Bytes && t.Bytes <= c.bytes &&
			cmp.Or(cmp.Compare(t.Milli, best.Milli), cmp.Compare(t.Bytes, best.Bytes)) < 0 {
			best = t
		}
	}
	return best
}
