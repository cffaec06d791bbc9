//go:build !linux

package collective

import (
	"errors"
	"net"
	"syscall"
)

const sharesMemory = false

var errNoSharedMemory = errors.New("collective: this system has no shared memory for ranks")

func createMemory(int) (int, []byte, error)           { return -1, nil, errNoSharedMemory }
func mapMemory(int, int) ([]byte, error)              { return nil, errNoSharedMemory }
func unmapMemory([]byte)                              {}
func closeDescriptor(int)                             {}
func writeNow(syscall.RawConn, []byte)                {}
func yieldProcessor()                                 {}
func sendDescriptor(*net.UnixConn, []byte, int) error { return errNoSharedMemory }

func receiveDescriptor(*net.UnixConn, []byte) (int, int, error) {
	return 0, noDescriptor, errNoSharedMemory
}
