package stream

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// detached is a socket that the runtime's poller does not know: a call that has to wait
// keeps its thread in the kernel. That thread wakes sooner than a goroutine that has parked,
// and it alone does: what arrives on a socket of the poller also wakes the thread that
// polls, whoever reads it.
type detached struct {
	net.Conn // for its addresses; its descriptor is closed
	fd       int
	end      time.Time // of the write under way

	mu     sync.Mutex
	users  int // calls that use fd
	closed bool
}

// detach takes a socket from the poller. No call may be under way on it.
func (s *socket) detach(nc net.Conn, writeTimeout time.Duration) error {
	d := &detached{Conn: nc}
	var err error
	if e := s.raw.Control(func(fd uintptr) { d.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return e
	}
	if err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	_ = nc.Close() // which leaves the socket to the other descriptor
	limit := unix.NsecToTimeval(writeTimeout.Nanoseconds())
	err = unix.SetsockoptTimeval(d.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	if err == nil {
		err = unix.SetNonblock(d.fd, false)
	}
	if err != nil {
		_ = d.Close() // the first error is the one to report
		return os.NewSyscallError("setsockopt", err)
	}
	s.held = d
	return nil
}

// use keeps the descriptor open until done.
func (d *detached) use() (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return -1, net.ErrClosed
	}
	d.users++
	return d.fd, nil
}

func (d *detached) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users--; d.users == 0 && d.closed {
		_ = unix.Close(d.fd) // nobody is left to tell
	}
}

// Close ends all calls.
func (d *detached) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	d.closed = true
	_ = unix.Shutdown(d.fd, unix.SHUT_RDWR) // fails if the peer has reset the connection: then nobody waits
	if d.users == 0 {
		return unix.Close(d.fd)
	}
	return nil
}

// Write writes all of b, or fails when the deadline is over: a call of the kernel that began
// before it may take the write timeout.
func (d *detached) Write(b []byte) (n int, err error) {
	fd, err := d.use()
	if err != nil {
		return 0, err
	}
	defer d.done()
	for n < len(b) {
		if time.Now().After(d.end) {
			return n, os.ErrDeadlineExceeded
		}
		k, err := unix.Write(fd, b[n:])
		n += max(k, 0)
		switch {
		case err == unix.EAGAIN:
			return n, os.ErrDeadlineExceeded
		case err != nil && err != unix.EINTR:
			return n, os.NewSyscallError("write", err)
		}
	}
	return n, nil
}

// SetWriteDeadline is for the next writes, of which one is under way at a time.
func (d *detached) SetWriteDeadline(t time.Time) error {
	d.end = t
	return nil
}

// read is that of the socket, into vec.
func (d *detached) read(s *socket) (int, error) {
	fd, err := d.use()
	if err != nil {
		return 0, err
	}
	defer d.done()
	n, errno := message(unix.SYS_RECVMSG, fd, &s.vec, unix.MSG_DONTWAIT)
	for errno == unix.EAGAIN {
		runtime.Gosched() // who is ready would have to wait for the processor that this thread keeps
		flags := 0
		if s.await(fd); s.wake > 1 {
			// Not in recvmsg: when it has taken a part of so much, the rest does not wake it.
			flags = unix.MSG_DONTWAIT
			_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, nil, nil) // recvmsg has the error
		}
		n, errno = message(unix.SYS_RECVMSG, fd, &s.vec, flags)
	}
	switch {
	case errno != 0:
		return 0, os.NewSyscallError("recvmsg", errno)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// write writes what there is room for.
func (d *detached) write(vec *[2]unix.Iovec) int {
	fd, err := d.use()
	if err != nil {
		return 0
	}
	defer d.done()
	n, errno := message(unix.SYS_SENDMSG, fd, vec, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if errno != 0 {
		return 0 // it comes again with the rest
	}
	return n
}

// message calls recvmsg or sendmsg.
func message(call uintptr, fd int, vec *[2]unix.Iovec, flags int) (int, syscall.Errno) {
	m := unix.Msghdr{Iov: &vec[0]}
	m.SetIovlen(len(vec))
	for {
		n, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&m)), uintptr(flags))
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
