//go:build nccl && cgo && linux

package acceltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

// ours are the names of abi.h with those of nccl.h.
var ours = map[string]string{
	"CCL_SUCCESS": "ncclSuccess", "CCL_DEVICE_ERROR": "ncclUnhandledCudaError", "CCL_SYSTEM_ERROR": "ncclSystemError",
	"CCL_INTERNAL_ERROR": "ncclInternalError", "CCL_INVALID_ARGUMENT": "ncclInvalidArgument", "CCL_INVALID_USAGE": "ncclInvalidUsage",
	"CCL_REMOTE_ERROR": "ncclRemoteError", "CCL_IN_PROGRESS": "ncclInProgress",
	"CCL_INT8": "ncclInt8", "CCL_UINT8": "ncclUint8", "CCL_INT32": "ncclInt32", "CCL_UINT32": "ncclUint32", "CCL_INT64": "ncclInt64",
	"CCL_UINT64": "ncclUint64", "CCL_FLOAT16": "ncclFloat16", "CCL_FLOAT32": "ncclFloat32", "CCL_FLOAT64": "ncclFloat64",
	"CCL_BFLOAT16": "ncclBfloat16", "CCL_FLOAT8_E4M3": "ncclFloat8e4m3", "CCL_FLOAT8_E5M2": "ncclFloat8e5m2",
	"CCL_SUM": "ncclSum", "CCL_PROD": "ncclProd", "CCL_MAX": "ncclMax", "CCL_MIN": "ncclMin", "CCL_AVG": "ncclAvg",
	"CCL_ID_BYTES": "NCCL_UNIQUE_ID_BYTES", "sizeof(ccl_id)": "sizeof(ncclUniqueId)", "CCL_UNDEFINED": "NCCL_CONFIG_UNDEF_INT",
	"CCL_SHRINK_ABORT": "NCCL_SHRINK_ABORT", "CCL_SCALAR_ON_HOST": "ncclScalarHostImmediate", "CCL_CONFIG_MAGIC": "NCCL_API_MAGIC",
	"offsetof(ccl_config, version)": "offsetof(ncclConfig_t, version)", "offsetof(ccl_config, blocking)": "offsetof(ncclConfig_t, blocking)",
	"offsetof(ccl_config, min_ctas)": "offsetof(ncclConfig_t, minCTAs)", "offsetof(ccl_config, net_name)": "offsetof(ncclConfig_t, netName)",
	"offsetof(ccl_config, split_share)": "offsetof(ncclConfig_t, splitShare)",
}

// functions are the types of abi.h with functions of nccl.h, but for that which has a struct
// as an argument.
var functions = map[string]string{
	"ccl_get_version": "GetVersion", "ccl_get_unique_id": "GetUniqueId", "ccl_of_comm": "CommAbort", "ccl_async_error": "CommGetAsyncError",
	"ccl_shrink": "CommShrink", "ccl_revoke": "CommRevoke", "ccl_premul_sum": "RedOpCreatePreMulSum",
	"ccl_op_destroy": "RedOpDestroy", "ccl_reduction": "AllReduce", "ccl_reduce": "Reduce", "ccl_broadcast": "Broadcast",
	"ccl_movement": "AllGather", "ccl_send": "Send", "ccl_recv": "Recv", "ccl_group": "GroupEnd",
}

// TestHeader compares abi.h with a header of the vendor, which NCCL_HEADER names: numbers,
// layouts, and how many arguments functions have and how large those are.
func TestHeader(t *testing.T) {
	header := os.Getenv("NCCL_HEADER")
	if header == "" {
		t.Skip("NCCL_HEADER names no header")
	}
	text, err := os.ReadFile(header)
	require.NoError(t, err)
	dir := t.TempDir()
	for _, name := range []string{"cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h"} { // what a header of CUDA says of it
		content := "typedef struct CUstream_st *cudaStream_t;\ntypedef struct CUevent_st *cudaEvent_t;\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#pragma once\n"+content), 0o600))
	}
	var c strings.Builder
	fmt.Fprintf(&c, "#include <stddef.h>\n#include \"abi.h\"\n#include %q\n", header)
	for mine, theirs := range ours {
		if strings.Contains(theirs, "offsetof") || strings.Contains(theirs, "sizeof") || regexp.MustCompile(`\b`+theirs+`\b`).Match(text) {
			fmt.Fprintf(&c, "_Static_assert((long)(%s) == (long)(%s), \"%s\");\n", mine, theirs, mine)
		}
	}
	for mine, theirs := range functions {
		if regexp.MustCompile(`\bnccl` + theirs + `\(`).Match(text) {
			fmt.Fprintf(&c, "void check_%s(void) { %s *f = (%s *)nccl%s; (void)f; }\n", theirs, mine, mine, theirs)
		}
	}
	source := filepath.Join(dir, "check.c")
	require.NoError(t, os.WriteFile(source, []byte(c.String()), 0o600))
	// A cast of a function to a type of other arguments is an error; handles and enums are alike.
	out, err := exec.CommandContext(t.Context(), "gcc", "-fsyntax-only", "-Werror", "-Wall", "-Wcast-function-type", "-I", dir, "-I", filepath.Join("..", "abi"), source).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestMisuseIsNoticed proves that the fake sees what the binding must not do.
func TestMisuseIsNoticed(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "nccl"))
	f := Build(t, accelerator.NVIDIA)
	f.Misuse = BadUse | BadThread | BadDevice | BadID | BadBusy
	l, err := abi.Load(abi.NVIDIA, f.Path, f.Path)
	require.NoError(t, err)
	noticed := func(what int64) { require.Equal(t, what, f.Stats(t).Misuse&what) }
	id := make([]byte, abi.NVIDIA.IDBytes())
	onThread(func() {
		require.Zero(t, l.SetDevice(0))
		require.Zero(t, l.UniqueID(id))
		require.Zero(t, f.Stats(t).Misuse)
		torn := append([]byte(nil), id...)
		torn[127] = 0
		_, code := l.Init(torn, 1, 0, 23007)
		require.Equal(t, 4, code)
		noticed(BadID)
		comm, code := l.Init(id, 1, 0, 23007)
		require.Equal(t, 7, code)
		state, code := l.AsyncError(comm)
		require.Equal(t, []int{0, 0}, []int{state, code})
		onThread(func() {
			_, code = l.AsyncError(comm)
			require.Equal(t, 5, code)
		})
		noticed(BadDevice)
		onThread(func() {
			require.Zero(t, l.SetDevice(0))
			_, code = l.AsyncError(comm)
			require.Zero(t, code)
		})
		noticed(BadThread)
		memory, code := l.Alloc(4)
		require.Zero(t, code)
		stream, code := l.StreamCreate()
		require.Zero(t, code)
		args := abi.Args{Src: memory, Dst: memory, Count: 1, Type: 7, Comm: comm, Stream: stream}
		require.Equal(t, 7, l.AllReduce(args))
		require.Equal(t, 7, l.AllReduce(args))
		noticed(BadBusy)
		require.Zero(t, l.Abort(comm))
		require.Equal(t, 5, l.Abort(comm))
		noticed(BadUse)
		require.Zero(t, l.StreamDestroy(stream))
		require.Zero(t, l.Free(memory))
		require.Zero(t, l.ReleaseDevice(0))
	})
	require.NoError(t, l.Close())
}
