//go:build (!amd64 && !arm64) || noasm

package kernel

import "testing"

func paths() []string { return []string{"generic"} }

func use(testing.TB, string) {}
