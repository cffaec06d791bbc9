//go:build !(nccl || rccl || musa || hccl) || !cgo || !linux

package abi

import (
	"fmt"
	"unsafe"
)

// Library is the two libraries of a vendor. Without a tag there is none.
type Library struct{}

// Load returns an error that wraps ErrNotBuilt.
func Load(v Vendor, _, _ string) (*Library, error) {
	return nil, fmt.Errorf("%w: needs -tags %s and cgo on Linux", ErrNotBuilt, v.Tag())
}

// Has says nothing of a library that is not there.
func (l *Library) Has() Optional { return 0 }

// Close has nothing to do.
func (l *Library) Close() error { return nil }

// Text has nothing to say.
func (l *Library) Text(bool, int, Handle) string { return "" }

// Host views no memory.
func (l *Library) Host(Handle, int) []byte { return nil }

// call is that of a library which Load never returns.
func (l *Library) call(*request) int { return -1 }

// Child has no memory.
type Child struct {
	room, excluded unsafe.Pointer
	n              int
}

// NewChild returns the zero value.
func NewChild([]int32) *Child { return &Child{} }

// Handle is that of no communicator.
func (c *Child) Handle() Handle { return 0 }

// Close has nothing to do.
func (c *Child) Close() {}
