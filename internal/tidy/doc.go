// Package tidy checks the source of this module against its house rules.
//
// # Terms
//
// A rule looks at parsed files and reports faults: file, line, the name of the rule
// and what to do. The rules are the order of the packages and which of them may use
// which module (imports), the purity of the deterministic cores (purity), limits on
// functions and files (size), documentation (docs), names (names), and leftovers
// (text). The tables that say which package is what stand in table.go; adding a
// package means adding its line there.
//
// # Smallest use
//
//	faults, err := tidy.Check(os.DirFS("../.."))
//
// It is run by its own test, so "go test ./..." fails on any fault.
//
// # Concurrency, errors, limits
//
// Check reads the file system it is given, once, in the order of the paths, and keeps
// no state. It returns an error only when a file cannot be read or parsed. Files are
// parsed one by one without types and without build tags, so every tag's files are
// checked; rules that would need types, such as the order of map iteration, are left
// to tests.
package tidy
