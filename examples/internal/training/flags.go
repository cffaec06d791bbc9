package training

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/elasticps/elasticps/examples/internal/report"
)

// Parse reads the flags of a program, which takes nothing else. Faults and help are shown
// on stderr as well. It returns flag.ErrHelp when that was asked for.
func Parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	fs.SetOutput(stderr)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%s: %q is not a flag, want flags only", fs.Name(), fs.Arg(0))
	}
	return nil
}

// Faults collects what is wrong with the flags of a program.
type Faults struct {
	Program string // its name, which the errors begin with
	errs    []error
}

// Within wants least <= v <= most.
func (f *Faults) Within(name string, v, least, most int) {
	f.Check(v >= least && v <= most, "%s is %d, want %d to %d", name, v, least, most)
}

// Rate wants 0 < v <= 10.
func (f *Faults) Rate(name string, v float64) {
	f.Check(v > 0 && v <= 10, "%s is %v, want over 0 and at most 10", name, v)
}

// Check takes note of a fault if ok is false. The format begins with the flag's name.
func (f *Faults) Check(ok bool, format string, args ...any) {
	if !ok {
		f.errs = append(f.errs, fmt.Errorf("%s: -%s", f.Program, fmt.Sprintf(format, args...)))
	}
}

// JSON wants a path that a result can be written to, or none.
func (f *Faults) JSON(path string) {
	if path != "" {
		f.errs = append(f.errs, report.CheckFile(path))
	}
}

// Err joins all that was found, nil for nothing.
func (f *Faults) Err() error { return errors.Join(f.errs...) }
