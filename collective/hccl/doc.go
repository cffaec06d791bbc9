// Package hccl opens the collective library of Ascend NPUs, HCCL, with ACL as their runtime.
//
// # Smallest use
//
//	lib, err := hccl.Open(accelerator.Config{})
//
// What it returns, terms, order, failure, errors and limits are in package accelerator. A
// program needs the tag hccl and cgo on Linux; else the error wraps accelerator.ErrNotBuilt. The
// libraries are part of CANN, which the variables of its set_env.sh lead to.
//
// # What differs
//
// There is no average. Reductions take int8, int32, int64 (not reduce-scatter), float16,
// float32 and bfloat16 (no product). A communicator cannot be aborted: what is stuck is
// taken off its stream where ACL has aclrtStreamAbort. A smaller group joins anew, by an
// exchange. The library gives up on missing ranks after HCCL_CONNECT_TIMEOUT, 120 s if unset,
// and holds twice HCCL_BUFFSIZE, 400 MB if unset, for each group.
//
// # References
//
// Huawei, CANN Community Edition: HCCL API Reference, AscendCL API Reference.
package hccl
