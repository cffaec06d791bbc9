package stream

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket reads from a kernel socket in ways that net.Conn has no call for: into two
// slices at once, and woken only when as much is there as the reader needs. A wake costs
// as much as tens of kilobytes. And it writes without waiting.
type socket struct {
	raw     syscall.RawConn
	held    *detached // nil while the poller has it
	patient bool      // the kernel knows SO_RCVLOWAT for it

	// of the read under way
	try  func(fd uintptr) bool
	vec  [2]unix.Iovec
	need int
	n    int
	err  error

	// of the write under way
	put   func(fd uintptr) bool
	out   [2]unix.Iovec
	wrote int

	wake int // bytes that wake the reader
}

// A reader that needs minWake bytes or more is woken when they are there, or maxWake:
// beyond it, reading and sending would not overlap.
const (
	minWake = 16 << 10
	maxWake = 256 << 10
)

func newSocket(nc net.Conn) *socket {
	s := &socket{wake: 1}
	var err error
	switch nc := nc.(type) {
	case *net.TCPConn:
		s.raw, err = nc.SyscallConn()
		s.patient = true
	case *net.UnixConn:
		s.raw, err = nc.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	s.try, s.put = s.readOnce, s.writeOnce
	return s
}

// read reads into a and, what is more, into b. It blocks until there is something; need
// says how much the caller is waiting for.
func (s *socket) read(need int, a, b []byte) (int, error) {
	s.need, s.n, s.err = need, 0, nil
	s.vec = vector(a, b)
	var err error
	if s.held != nil {
		s.n, err = s.held.read(s)
	} else {
		err = s.raw.Read(s.try)
	}
	s.vec = [2]unix.Iovec{} // the slices are the caller's again
	if err == nil {
		err = s.err
	}
	return s.n, err
}

func vector(a, b []byte) (v [2]unix.Iovec) {
	v[0].Base, v[1].Base = unsafe.SliceData(a), unsafe.SliceData(b)
	v[0].SetLen(len(a))
	v[1].SetLen(len(b))
	return v
}

// readOnce reads without blocking. It reports false when there is nothing.
func (s *socket) readOnce(fd uintptr) bool {
	for {
		n, _, errno := syscall.Syscall(syscall.SYS_READV, fd, uintptr(unsafe.Pointer(&s.vec)), uintptr(len(s.vec)))
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			s.await(int(fd))
			return false
		case errno != 0:
			s.err = os.NewSyscallError("readv", errno)
			return true
		case n == 0:
			s.err = io.EOF
			return true
		default:
			s.n = int(n)
			return true
		}
	}
}

// await tells the kernel what wakes the reader. It wakes it at once if as much has come
// meanwhile.
func (s *socket) await(fd int) {
	wake := 1
	if s.need >= minWake {
		wake = min(s.need, maxWake)
	}
	if s.patient && wake != s.wake && syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, wake) == nil {
		s.wake = wake
	}
}

// write writes a and b, or what there is room for, and reports how much.
func (s *socket) write(a, b []byte) int {
	s.out, s.wrote = vector(a, b), 0
	if s.held != nil {
		s.wrote = s.held.write(&s.out)
	} else {
		_ = s.raw.Write(s.put) // an error comes again with the rest
	}
	s.out = [2]unix.Iovec{}
	return s.wrote
}

func (s *socket) writeOnce(fd uintptr) bool {
	for {
		n, _, errno := syscall.Syscall(syscall.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&s.out)), uintptr(len(s.out)))
		if errno == syscall.EINTR {
			continue
		}
		if errno == 0 {
			s.wrote = int(n)
		}
		return true
	}
}
