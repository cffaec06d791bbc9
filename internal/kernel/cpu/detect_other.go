//go:build (!amd64 && !arm64) || noasm

package cpu

func detect() Features { return Features{} }
