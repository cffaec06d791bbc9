package abi

import (
	"errors"
	"fmt"
	"strings"
)

// Vendor is who makes a library.
type Vendor int

// The vendors, as in shim.h.
const (
	NVIDIA Vendor = iota + 1
	AMD
	MooreThreads
	Ascend
)

// Lengths of the ids of communicators.
const (
	familyIDBytes = 128
	ascendIDBytes = 4108
)

// IDBytes returns the length of the id of a communicator in bytes.
func (v Vendor) IDBytes() int {
	if v == Ascend {
		return ascendIDBytes
	}
	return familyIDBytes
}

// Tag returns the build tag that a program needs for the vendor.
func (v Vendor) Tag() string {
	return [...]string{NVIDIA: "nccl", AMD: "rccl", MooreThreads: "musa", Ascend: "hccl"}[v]
}

// Errors of Load.
var (
	ErrNotBuilt = errors.New("not built")
	ErrNotFound = errors.New("library cannot be loaded")
	ErrSymbol   = errors.New("function is missing")
	ErrForeign  = errors.New("library of another vendor")
)

// NotFoundError says where a library was looked for. It wraps ErrNotFound.
type NotFoundError struct {
	Tried []string // a name or path and what the loader said, one for each

	foreign error // why one that was loaded was not taken
}

// Error names all that was tried.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("%v: tried %s", ErrNotFound, strings.Join(e.Tried, "; "))
}

// Unwrap returns ErrNotFound and, if one was there but another vendor's, ErrForeign.
func (e *NotFoundError) Unwrap() []error {
	if e.foreign != nil {
		return []error{ErrNotFound, e.foreign}
	}
	return []error{ErrNotFound}
}

// SymbolError says which function a library lacks. It wraps ErrSymbol.
type SymbolError struct {
	Name, Library string
	VersionCode   int // that the library states, or 0
}

// Error names the function and the library.
func (e *SymbolError) Error() string {
	return fmt.Sprintf("%v: %s in %s, version code %d", ErrSymbol, e.Name, e.Library, e.VersionCode)
}

// Unwrap returns ErrSymbol.
func (e *SymbolError) Unwrap() error { return ErrSymbol }

// names are those of a library: in the environment, where the system looks for libraries, and
// the directories where vendors put it otherwise.
type names struct {
	variable string
	sonames  []string
	dirs     []string
}

// searches says, by vendor, how the library and the runtime are found. Where a variable of
// the environment names a directory, that is part of a path in the form of os.Expand.
var searches = [...]struct{ library, runtime names }{
	NVIDIA: {
		names{"NCCL_SO_PATH", []string{"libnccl.so.2"}, []string{"/usr/local/cuda/lib64", "/usr/local/nccl/lib", "/opt/nvidia/nccl/lib"}},
		names{"CUDA_SO_PATH", []string{"libcuda.so.1"}, []string{"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"}},
	},
	AMD: {
		names{"RCCL_SO_PATH", []string{"librccl.so.1"}, []string{"${ROCM_PATH}/lib", "/opt/rocm/lib"}},
		names{"HIP_SO_PATH", []string{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}, []string{"${ROCM_PATH}/lib", "/opt/rocm/lib"}},
	},
	MooreThreads: {
		names{"MCCL_SO_PATH", []string{"libmccl.so.2", "libmccl.so"}, []string{"${MUSA_HOME}/lib", "/usr/local/musa/lib"}},
		names{"MUSART_SO_PATH", []string{"libmusart.so"}, []string{"${MUSA_HOME}/lib", "/usr/local/musa/lib"}},
	},
	Ascend: {
		names{"HCCL_SO_PATH", []string{"libhccl.so"}, []string{
			"${ASCEND_HOME_PATH}/lib64", "${ASCEND_TOOLKIT_HOME}/lib64", "/usr/local/Ascend/cann/lib64", "/usr/local/Ascend/ascend-toolkit/latest/lib64",
		}},
		names{"ACL_SO_PATH", []string{"libascendcl.so"}, []string{
			"${ASCEND_HOME_PATH}/lib64", "${ASCEND_TOOLKIT_HOME}/lib64", "/usr/local/Ascend/cann/lib64", "/usr/local/Ascend/ascend-toolkit/latest/lib64",
		}},
	},
}

// candidates lists what to try, in this order: the path that the program gives, else the one
// that the environment gives, else all others.
func (n *names) candidates(path string, environment func(string) string) []string {
	if path == "" {
		path = environment(n.variable)
	}
	if path != "" {
		return []string{path}
	}
	list := append([]string(nil), n.sonames...)
	for _, dir := range n.dirs {
		if rest, ok := strings.CutPrefix(dir, "${"); ok {
			variable, below, _ := strings.Cut(rest, "}")
			if dir = environment(variable); dir == "" {
				continue
			}
			dir += below
		}
		for _, soname := range n.sonames {
			list = append(list, dir+"/"+soname)
		}
	}
	return list
}
