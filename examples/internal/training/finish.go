package training

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/report"
)

// Exit codes of the examples.
const (
	exitFailed      = 1
	exitInterrupted = 130
)

// LoadData reads MNIST from a folder, or from where it is found if that is empty: so many of the
// first images of both sets, all of them for zero.
func LoadData(folder string, numImages, numTest int) (train, test *mnist.Set, err error) {
	dir, err := mnist.Find(folder)
	if err != nil {
		return nil, nil, err
	}
	if train, test, err = mnist.Load(dir); err != nil {
		return nil, nil, err
	}
	if numImages > 0 {
		train = train.First(numImages)
	}
	if numTest > 0 {
		test = test.First(numTest)
	}
	return train, test, nil
}

// Finish shows the report of a run, and writes it to the file that the options name.
// It returns err, or what went wrong in doing so.
func Finish(w io.Writer, o Options, result report.Report, err error) error {
	var failed *FailedError
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	fmt.Fprintln(w)
	if tableErr := result.WriteTable(w); tableErr != nil {
		return errors.Join(err, tableErr)
	}
	if n := result.PushesApplied - result.PushesAcknowledged; n > 0 {
		fmt.Fprintf(w, "\n%d of the pushes applied belong to steps that a killed worker did not live to confirm.\n", n)
	}
	if o.JSON != "" {
		if jsonErr := result.WriteJSON(o.JSON); jsonErr != nil {
			return errors.Join(err, jsonErr)
		}
	}
	return err
}

// Main calls f with a context that a Ctrl-C or SIGTERM ends, and ends the program with
// what f returns: 0, also after flag.ErrHelp, 1 after an error, which it shows, or 130
// after an interruption.
// A second Ctrl-C ends the program at once.
func Main(f func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := f(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case interrupted:
		fmt.Fprintln(os.Stderr, "interrupted")
		os.Exit(exitInterrupted)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitFailed)
}
