//go:build !noasm

package cpu

const assembly = true
