package abi

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhereALibraryIsLookedFor(t *testing.T) {
	environment := map[string]string{}
	get := func(name string) string { return environment[name] }
	n := &searches[AMD].runtime
	require.Equal(t, []string{
		"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
		"/opt/rocm/lib/libamdhip64.so.7", "/opt/rocm/lib/libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so.5",
	}, n.candidates("", get))
	environment["ROCM_PATH"] = "/r"
	require.Contains(t, n.candidates("", get), "/r/lib/libamdhip64.so.6")
	environment["HIP_SO_PATH"] = "/env.so"
	require.Equal(t, []string{"/env.so"}, n.candidates("", get), "the environment alone")
	require.Equal(t, []string{"/given.so"}, n.candidates("/given.so", get), "the program before the environment")
}
