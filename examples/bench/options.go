package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// errUsage is wrapped by the errors of a command line that cannot be followed.
var errUsage = errors.New("bench: usage")

// usageText comes before the list of flags.
const usageText = `bench measures push, pull, optimizers, migrations, replicas, checkpoints, tables,
collective operations and compression on this machine, and beside each what the machine
itself gives: a raw stream, a memory copy, a plain loop, a plain file.

Flags:
`

// options are the flags.
type options struct {
	json  string
	only  []string
	quick bool
	redis string
}

// parseOptions reads the flags. The errors wrap errUsage, or flag.ErrHelp.
func parseOptions(args []string, families []family, stderr io.Writer) (options, error) {
	var o options
	var only string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // the faults are in the error, with what is valid
	fs.StringVar(&o.json, "json", "", "write the rows to this file as well, one JSON object per line")
	fs.StringVar(&only, "only", "", "measure only rows whose names begin with this, or with one of several separated by commas")
	fs.BoolVar(&o.quick, "quick", false, "fewer and shorter probes, no shard of 1 GiB, no table of 10 million rows: about five minutes")
	fs.StringVar(&o.redis, "redis", "", "measure this Redis server too: host:port or the path of its unix socket; its database is emptied")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(stderr)
		fmt.Fprint(stderr, usageText)
		fs.PrintDefaults()
		fmt.Fprint(stderr, "\nRows:\n")
		for _, g := range groups(families) {
			fmt.Fprintf(stderr, "  %s\n", g)
		}
		return o, err
	}
	if err != nil {
		return o, fmt.Errorf("%w: %w; the flags are -json FILE, -only NAME, -quick and -redis ADDRESS", errUsage, err)
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("%w: %q is not a flag; the flags are -json FILE, -only NAME, -quick and -redis ADDRESS", errUsage, fs.Arg(0))
	}
	if o.json == "-" {
		return o, fmt.Errorf("%w: -json is \"-\", want a file", errUsage)
	}
	o.only, err = parseOnly(only, families)
	return o, err
}

// parseOnly returns the prefixes of names, each of which some row has.
func parseOnly(only string, families []family) ([]string, error) {
	if only == "" {
		return nil, nil
	}
	names := rowNames(families)
	prefixes := strings.Split(only, ",")
	for _, p := range prefixes {
		begins := func(name string) bool { return strings.HasPrefix(name, p) }
		if p == "" || !slices.ContainsFunc(names, begins) {
			return nil, fmt.Errorf("%w: -only %q is the beginning of no row; they begin with %s; -help lists them", errUsage, p, strings.Join(beginnings(names), ", "))
		}
	}
	return prefixes, nil
}

// beginnings are the first words of names, each once.
func beginnings(names []string) []string {
	var words []string
	for _, n := range names {
		if word, _, _ := strings.Cut(n, "."); !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// groups are the names of rows with the same first word, a line for each.
func groups(families []family) []string {
	names := rowNames(families)
	var lines []string
	for _, word := range beginnings(names) {
		others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, word+".") && n != word })
		lines = append(lines, strings.Join(others, " "))
	}
	return lines
}

// selected reports whether a row is to be measured.
func (o options) selected(name string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(o.only, func(p string) bool { return strings.HasPrefix(name, p) })
}

// repeats is how often limit and product are measured.
func (o options) repeats() int {
	if o.quick {
		return 3
	}
	return 7
}

// probeTime is how long one probe lasts.
func (o options) probeTime() time.Duration {
	if o.quick {
		return 80 * time.Millisecond
	}
	return 200 * time.Millisecond
}
