package collective

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// What stands for a descriptor.
const (
	noDescriptor   = -1
	lostDescriptor = -2 // one was sent, and the system did not let it through
)

// share hands this rank's memory, if it has any, to a mate and takes the mate's. It
// returns nil if one of them has none, or cannot map the other's: sockets serve as well. first
// says who begins: neither may read what is still part of the greeting.
func (h *hostMemory) share(ctx context.Context, l link, fd int, epoch uint64, rank, place int, first bool) (*mate, error) {
	socket, ok := l.conn.NetConn().(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("%w: shared memory over %v", ErrRefused, l.conn.NetConn().LocalAddr().Network())
	}
	if place < 0 {
		return nil, fmt.Errorf("%w: shared memory of a rank that says it is of another host", ErrRefused)
	}
	end, _ := ctx.Deadline()
	_ = socket.SetDeadline(end) // a socket that cannot is closed
	stop := context.AfterFunc(ctx, func() { _ = l.conn.CloseWithError(context.Cause(ctx)) })
	defer stop()
	defer func() { _ = socket.SetDeadline(time.Time{}) }()
	theirs, err := swapMemory(socket, first, h != nil, fd)
	if err != nil || h == nil || theirs == noDescriptor {
		closeDescriptor(theirs)
		return nil, err
	}
	mem, err := h.takeMemory(theirs, epoch, place)
	if errors.Is(err, ErrRefused) {
		return nil, err
	}
	if err != nil {
		h.log.Warn("collective: two ranks of this host use sockets", "rank", rank, "err", err)
	}
	both, err := swapMapped(socket, first, err == nil)
	var raw syscall.RawConn
	if both && err == nil {
		raw, err = socket.SyscallConn()
	}
	if !both || err != nil {
		unmapMemory(mem)
		return nil, err
	}
	m := &mate{
		host: h, rank: rank, place: place, theirs: &arena{h.own.arenaShape, mem},
		conn: l.conn, socket: socket, raw: raw, fds: make(chan int, maxFiles),
	}
	m.lane = newRingLane(m)
	h.mates[place] = m
	return m, nil
}

// takeMemory maps the memory of a mate. The error wraps ErrRefused where what came is not that.
func (h *hostMemory) takeMemory(fd int, epoch uint64, place int) ([]byte, error) {
	if fd == lostDescriptor {
		return nil, errors.New("collective: the descriptor of shared memory was not let through")
	}
	mem, err := mapMemory(fd, h.own.size)
	if err != nil {
		return nil, err
	}
	if err := (&arena{h.own.arenaShape, mem}).verify(epoch, place); err != nil {
		unmapMemory(mem)
		return nil, err
	}
	return mem, nil
}

// swapMemory tells the other end of a socket whether this rank has memory, hands it over,
// and takes what the other one has: noDescriptor if that is none.
func swapMemory(socket *net.UnixConn, first, have bool, fd int) (theirs int, err error) {
	note := byte(noteNoMemory)
	if have {
		note = noteMemory
	} else {
		fd = noDescriptor
	}
	got, theirs, err := swap(socket, first, note, fd)
	if err == nil && (got != noteMemory && got != noteNoMemory || (got == noteMemory) != (theirs != noDescriptor)) {
		closeDescriptor(theirs)
		return noDescriptor, fmt.Errorf("%w: note %#x with descriptor %d", ErrRefused, got, theirs)
	}
	return theirs, err
}

// swapMapped reports whether both ends of a socket have mapped the other's memory.
func swapMapped(socket *net.UnixConn, first, mapped bool) (bool, error) {
	note := byte(noteNoMemory)
	if mapped {
		note = noteMemory
	}
	got, fd, err := swap(socket, first, note, noDescriptor)
	closeDescriptor(fd)
	return mapped && got == noteMemory, err
}

// swap exchanges a byte, and what descriptors there are, with the other end of a socket.
func swap(socket *net.UnixConn, first bool, note byte, fd int) (got byte, theirs int, err error) {
	if first {
		if err := sendDescriptor(socket, []byte{note}, fd); err != nil {
			return 0, noDescriptor, err
		}
	}
	var b [1]byte
	n, theirs, err := receiveDescriptor(socket, b[:])
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == nil && !first {
		err = sendDescriptor(socket, []byte{note}, fd)
	}
	if err != nil {
		closeDescriptor(theirs)
		return 0, noDescriptor, err
	}
	return b[0], theirs, nil
}
