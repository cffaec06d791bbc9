//go:build (amd64 || arm64) && !noasm

package cpu

const assembly = true
