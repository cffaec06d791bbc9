package training

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/elasticps/elasticps/examples/internal/report"
)

// Flags are the settings of a program.
type Flags interface {
	// AddFlags defines the flags, with their defaults.
	AddFlags(fs *flag.FlagSet)
	// Validate reports every fault of what they were set to.
	Validate() error
}

// Parse reads the settings of a program from its arguments, all of which are flags. Help, and how
// the arguments are wrong, is shown on stderr. It returns flag.ErrHelp when help was asked for.
func Parse(program string, args []string, stderr io.Writer, settings Flags) error {
	fs := flag.NewFlagSet(program, flag.ContinueOnError)
	fs.SetOutput(stderr)
	settings.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%s: %q is not a flag, want flags only", program, fs.Arg(0))
	}
	return settings.Validate()
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
func (f *Faults) JSON(path string) { f.errs = append(f.errs, report.CheckFile(path)) }

// Err joins all that was found, nil for nothing.
func (f *Faults) Err() error { return errors.Join(f.errs...) }
