package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	interrupted := ctx.Err() != nil
	stop()
	os.Exit(exitCode(err, interrupted, os.Stderr))
}

// exitCode says why the program ends, if something is wrong, and returns its code.
func exitCode(err error, interrupted bool, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case interrupted:
		fmt.Fprintln(stderr, "interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(stderr, err)
	if errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

// run is the program, or one of the processes that it starts.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case roleServer:
			return runServer(ctx, args[1:], stdout)
		case roleRank:
			return runRank(ctx, args[1:])
		case roleTwin:
			return runTwin(ctx, os.Stdin, stdout)
		}
	}
	families := allFamilies()
	o, err := parseOptions(args, families, stderr)
	if err != nil {
		return err
	}
	out, err := newReport(o, stdout)
	if err != nil {
		return err
	}
	before, known := readProcessors()
	own := processorTime()
	b, err := newBench(o, out, stderr)
	if err == nil {
		err = b.measure(ctx, families)
		b.close()
	}
	if err == nil {
		out.summarize()
	}
	if after, _ := readProcessors(); err == nil && known {
		fmt.Fprintln(stdout, others(before, after, processorTime()-own, runtime.NumCPU()))
	}
	return errors.Join(err, out.close())
}
