package collective

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharesMemory says whether this system has memory that ranks of one host can share.
const sharesMemory = true

// seals keep the length of shared memory as it is: memory that a peer cuts off under a
// mapping would end this process.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// createMemory makes shared memory of some size, all of whose pages exist. It has no name,
// so that nothing is left of it when its processes end, however they do.
func createMemory(size int) (fd int, mem []byte, err error) {
	if fd, err = unix.MemfdCreate("elasticps-collective", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return -1, nil, fmt.Errorf("collective: shared memory: %w", err)
	}
	err = unix.Fallocate(fd, 0, 0, int64(size)) // what is not there now would be a fault later
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err == nil {
		mem, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		return -1, nil, errors.Join(fmt.Errorf("collective: %d bytes of shared memory: %w", size, err), unix.Close(fd))
	}
	return fd, mem, nil
}

// mapMemory maps memory that another process has made, which must have the seals and
// the size. It closes the descriptor.
func mapMemory(fd, size int) ([]byte, error) {
	defer func() { _ = unix.Close(fd) }() // the mapping stays
	have, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: what came for shared memory is none: %w", ErrRefused, err)
	}
	if have&seals != seals {
		return nil, fmt.Errorf("%w: shared memory with seals %#x, must have %#x", ErrRefused, have, seals)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Size != int64(size) {
		return nil, fmt.Errorf("%w: shared memory of %d bytes, must be %d", ErrRefused, stat.Size, size)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("collective: mapping %d bytes of shared memory: %w", size, err)
	}
	return mem, nil
}

func unmapMemory(mem []byte) {
	if mem != nil {
		_ = unix.Munmap(mem) // it was mapped
	}
}

func closeDescriptor(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd) // whoever needed it has it
	}
}

// sendDescriptor writes bytes with, unless fd is negative, a descriptor.
func sendDescriptor(c *net.UnixConn, b []byte, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := c.WriteMsgUnix(b, rights, nil)
	return err
}

// receiveDescriptor reads bytes, and the descriptor that came with them, noDescriptor or
// lostDescriptor. Of several the system closes all but one.
func receiveDescriptor(c *net.UnixConn, b []byte) (n, fd int, err error) {
	rights := make([]byte, unix.CmsgSpace(4))
	n, used, flags, _, err := c.ReadMsgUnix(b, rights)
	if err != nil {
		return n, noDescriptor, err
	}
	none := noDescriptor
	if flags&unix.MSG_CTRUNC != 0 {
		none = lostDescriptor
	}
	messages, err := unix.ParseSocketControlMessage(rights[:used])
	if err != nil || len(messages) == 0 {
		return n, none, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return n, none, err
	}
	for _, extra := range fds[1:] {
		closeDescriptor(extra)
	}
	return n, fds[0], nil
}

// writeNow writes what there is room for, and does not wait for more.
func writeNow(raw syscall.RawConn, b []byte) {
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = unix.Write(int(fd), b) // without room there are many unread ones before it
		return true
	})
}

// yieldProcessor lets other processes run.
func yieldProcessor() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
