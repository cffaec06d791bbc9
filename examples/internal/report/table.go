package report

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// WriteTable writes the report as aligned text. The error is that of w, or
// names the value that no run can have.
func (r Report) WriteTable(w io.Writer) error {
	if err := r.validate(); err != nil {
		return err
	}
	var text bytes.Buffer
	r.writeSummary(&text)
	r.writeServers(&text)
	r.writeMigrations(&text)
	if _, err := w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("report: write table: %w", err)
	}
	return nil
}

// The writers below cannot fail: they write into memory.

func (r Report) writeSummary(text *bytes.Buffer) {
	fmt.Fprintf(text, "Result\n")
	columns := rightAligned(text)
	fmt.Fprintf(columns, "test accuracy\t%.2f %%\t\n", r.TestAccuracy*100)
	fmt.Fprintf(columns, "wall time\t%.1f s\t\n", r.Wall.Seconds())
	if r.ServersKilled > 0 {
		fmt.Fprintf(columns, "servers killed\t%d\t\n", r.ServersKilled)
		fmt.Fprintf(columns, "shards taken over\t%d\t\n", r.TakenOver)
		fmt.Fprintf(columns, "recovery\t%.0f ms\t\n", r.Recovery.Seconds()*1000)
	}
	fmt.Fprintf(columns, "pushes sent\t%s\t\n", grouped(r.PushesSent))
	fmt.Fprintf(columns, "pushes acknowledged\t%s\t\n", grouped(r.PushesAcknowledged))
	fmt.Fprintf(columns, "pushes applied\t%s\t\n", grouped(r.PushesApplied))
	fmt.Fprintf(columns, "lost\t%s\t\n", grouped(r.Lost))
	fmt.Fprintf(columns, "doubled\t%s\t\n", grouped(r.Doubled))
	columns.Flush()
}

func (r Report) writeServers(text *bytes.Buffer) {
	fmt.Fprintf(text, "\nServers over time\n")
	if len(r.Servers) == 0 {
		fmt.Fprintf(text, "  none\n")
		return
	}
	columns := rightAligned(text)
	fmt.Fprintf(columns, "seconds\tservers\t\n")
	for _, s := range r.Servers {
		fmt.Fprintf(columns, "%.1f\t%d\t\n", s.At.Seconds(), s.Count)
	}
	columns.Flush()
}

func (r Report) writeMigrations(text *bytes.Buffer) {
	fmt.Fprintf(text, "\nMigrations: %d\n", len(r.Migrations))
	if len(r.Migrations) == 0 {
		return
	}
	columns := rightAligned(text)
	fmt.Fprintf(columns, "shard\tfrom\tto\tbytes\tfreeze ms\ttotal ms\t\n")
	for _, m := range r.Migrations {
		fmt.Fprintf(columns, "%d\t%s\t%s\t%s\t%.2f\t%.1f\t\n", m.Shard, m.From, m.To, grouped(m.Bytes),
			m.Freeze.Seconds()*1000, m.Total.Seconds()*1000)
	}
	columns.Flush()
}

// rightAligned returns a writer of columns with two spaces between them.
func rightAligned(text *bytes.Buffer) *tabwriter.Writer {
	return tabwriter.NewWriter(text, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// grouped writes n, which is not negative, with a comma between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	out := make([]byte, 0, len(digits)+len(digits)/3)
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out = append(out, ',')
		}
		out = append(out, digits[i])
	}
	return string(out)
}
