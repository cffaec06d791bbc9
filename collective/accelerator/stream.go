package accelerator

import (
	"context"
	"fmt"

	"github.com/elasticps/elasticps/collective/internal/abi"
)

// stagingBytes is how much of a slice of Go is copied at a time, by way of memory of the
// host that the device can reach.
const stagingBytes = 1 << 20

// Stream is a queue of a device: what is enqueued is carried out in that order, besides
// what other streams do.
type Stream struct {
	d       *Device
	handle  abi.Handle
	foreign bool
	staging *Host
	turn    chan struct{} // held by who uses staging
}

// NewStream makes a stream.
func (d *Device) NewStream(ctx context.Context) (*Stream, error) {
	s := &Stream{d: d, turn: make(chan struct{}, 1)}
	if err := d.do(ctx, s.create); err != nil {
		return nil, err
	}
	return s, nil
}

// create is of the thread.
func (s *Stream) create() error {
	handle, code := s.d.lib.abi.StreamCreate()
	if code != success {
		return s.d.lib.runtimeError("create stream", code)
	}
	s.handle = handle
	s.d.streams[s] = true
	return nil
}

// WrapStream makes a Stream of one of the device that somebody else has made, such as a
// library that computes: what is enqueued here comes behind what is there. It stays theirs.
func (d *Device) WrapStream(handle uintptr) *Stream {
	return &Stream{d: d, handle: abi.Handle(handle), foreign: true, turn: make(chan struct{}, 1)}
}

// Sync waits until everything has ended that is in the stream when it is called. When ctx
// ends before that, the stream goes on.
func (s *Stream) Sync(ctx context.Context) error {
	return s.enqueue(ctx, func() (bool, error) { return false, nil })
}

func (s *Stream) enqueue(ctx context.Context, begin func() (bool, error)) error {
	h, err := s.d.submit(&task{ctx: ctx, stream: s, begin: begin})
	if err != nil {
		return err
	}
	return h.finish()
}

// StartCopyIn begins to copy memory of a Host into the elements of a buffer, and returns at
// once. src has as many bytes and may not be written to before it has ended.
func (s *Stream) StartCopyIn(ctx context.Context, dst Buffer, src []byte) (*Handle, error) {
	return s.startCopy(ctx, dst, src, true)
}

// StartCopyOut begins to copy the elements of a buffer into memory of a Host.
func (s *Stream) StartCopyOut(ctx context.Context, dst []byte, src Buffer) (*Handle, error) {
	return s.startCopy(ctx, src, dst, false)
}

func (s *Stream) startCopy(ctx context.Context, b Buffer, host []byte, in bool) (*Handle, error) {
	if err := s.checkCopy(b, host); err != nil {
		return nil, err
	}
	address, ok := s.d.hostAddress(host)
	if !ok && len(host) > 0 {
		return nil, argument("copy in the background from or to memory that is not of a Host")
	}
	return s.d.submit(&task{ctx: ctx, stream: s, begin: func() (bool, error) {
		return false, s.copy(b, address, len(host), in)
	}})
}

func (s *Stream) checkCopy(b Buffer, host []byte) error {
	if err := b.usable(s.d); err != nil {
		return err
	}
	if b.Bytes() != len(host) {
		return argument("copy between %d bytes of the host and %d of the device", len(host), b.Bytes())
	}
	return nil
}

// copy is of the thread.
func (s *Stream) copy(b Buffer, host abi.Handle, bytes int, in bool) error {
	if bytes == 0 {
		return nil
	}
	if in {
		return s.d.lib.check("copy to device", s.d.lib.abi.CopyIn(b.address(), host, bytes, s.handle))
	}
	return s.d.lib.check("copy to host", s.d.lib.abi.CopyOut(host, b.address(), bytes, s.handle))
}

// CopyIn copies bytes of any memory into the elements of a buffer. It blocks until that
// is done, behind what is in the stream.
func (s *Stream) CopyIn(ctx context.Context, dst Buffer, src []byte) error {
	return s.copyAll(ctx, dst, src, true)
}

// CopyOut copies the elements of a buffer to any memory. It blocks until that is done,
// behind what is in the stream.
func (s *Stream) CopyOut(ctx context.Context, dst []byte, src Buffer) error {
	return s.copyAll(ctx, src, dst, false)
}

func (s *Stream) copyAll(ctx context.Context, b Buffer, host []byte, in bool) error {
	if err := s.checkCopy(b, host); err != nil {
		return err
	}
	if _, ok := s.d.hostAddress(host); ok || len(host) == 0 {
		h, err := s.startCopy(ctx, b, host, in)
		if err != nil {
			return err
		}
		return h.finish()
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("accelerator: copy: %w", context.Cause(ctx))
	}
	return s.stage(ctx, b, host, in)
}

// stage copies by way of memory that the device can reach: a slice of Go could not be handed
// to the library without making the thread of the device wait for it.
func (s *Stream) stage(ctx context.Context, b Buffer, host []byte, in bool) error {
	if s.staging == nil {
		h, err := s.d.AllocHost(ctx, stagingBytes)
		if err != nil {
			return err
		}
		s.staging = h
	}
	bytes := Buffer{b.m, b.offset, Uint8, b.Bytes()}
	for at := 0; at < len(host); at += stagingBytes {
		n := min(stagingBytes, len(host)-at)
		part, _ := bytes.Part(at, n) // within, see checkCopy
		room := s.staging.memory[:n]
		if in {
			copy(room, host[at:])
		}
		h, err := s.startCopy(ctx, part, room, in)
		if err == nil {
			err = h.finish()
		}
		if err != nil {
			s.staging = nil // the device may still use it; Close frees it
			return err
		}
		if !in {
			copy(host[at:], room)
		}
	}
	return nil
}

// Handle returns the stream itself, for other libraries.
func (s *Stream) Handle() uintptr { return uintptr(s.handle) }

// Close ends the stream when nothing is under way on the device. A stream of WrapStream
// stays.
func (s *Stream) Close(ctx context.Context) error {
	return s.d.whenIdle(ctx, s.destroy)
}

// destroy is of the thread.
func (s *Stream) destroy() error {
	if s.foreign || !s.d.streams[s] {
		return nil
	}
	delete(s.d.streams, s)
	if s.staging != nil {
		if err := s.staging.free(); err != nil {
			return err
		}
	}
	return s.d.lib.check("destroy stream", s.d.lib.abi.StreamDestroy(s.handle))
}
