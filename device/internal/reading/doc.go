// Package reading turns what vendors write about devices into figures.
//
// # Terms
//
// A Cell is one value of a text, with its place for the error. The words that the vendors
// use for "not reported", such as N/A, [Not Supported] and a dash, are unknown figures; a
// number outside what the quantity allows is unknown as well; anything else that is no
// number is an error.
//
// # Smallest use
//
//	cell := reading.Cell{Source: "nvidia-smi", Line: 2, Field: "power.draw", Text: "68.00 W"}
//	watts, err := cell.Number("W")
//
// # Concurrency, errors, limits
//
// All functions are pure. Errors are *device.TextError.
package reading
