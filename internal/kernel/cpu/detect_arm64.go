//go:build !noasm

package cpu

func detect() Features { return Features{NEON: true} }
