package accelerator

import (
	"context"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/elasticps/elasticps/collective/internal/abi"
)

// Memory is memory of a device.
type Memory struct {
	d       *Device
	address abi.Handle
	bytes   int
	foreign bool
	freed   atomic.Bool
}

// Alloc allocates memory of the device.
func (d *Device) Alloc(ctx context.Context, bytes int) (*Memory, error) {
	if bytes <= 0 {
		return nil, argument("allocation of %d bytes, must be positive", bytes)
	}
	m := &Memory{d: d, bytes: bytes}
	err := d.do(ctx, func() error {
		address, code := d.lib.abi.Alloc(bytes)
		if code != success {
			return d.lib.runtimeError("allocate", code)
		}
		m.address = address
		d.memories[m] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Wrap makes Memory of bytes that somebody else has allocated on the device, such as a
// library that computes. They stay theirs: Free does nothing.
func (d *Device) Wrap(address uintptr, bytes int) (*Memory, error) {
	if address == 0 || bytes <= 0 {
		return nil, argument("%d bytes at address %#x, must be positive", bytes, address)
	}
	return &Memory{d: d, address: abi.Handle(address), bytes: bytes, foreign: true}, nil
}

// Bytes returns the length of the memory in bytes.
func (m *Memory) Bytes() int { return m.bytes }

// Address returns the address of the memory on the device, for other libraries.
func (m *Memory) Address() uintptr { return uintptr(m.address) }

// Free gives the memory back as soon as nothing is under way on the device: before, the
// vendor's library might wait for all of it. The memory must not be used from now on. When
// ctx ends before that, it is given back later. Calling it again does nothing.
func (m *Memory) Free(ctx context.Context) error {
	if m.freed.Swap(true) || m.foreign {
		return nil
	}
	return m.d.whenIdle(ctx, m.free)
}

// free is of the thread.
func (m *Memory) free() error {
	if !m.d.memories[m] {
		return nil
	}
	delete(m.d.memories, m)
	m.freed.Store(true)
	return m.d.lib.check("free", m.d.lib.abi.Free(m.address))
}

// Buffer is elements of one type in memory of a device. The zero value has none.
type Buffer struct {
	m      *Memory
	offset int
	kind   Type
	count  int
}

// Elements returns all of the memory as elements of a type, as many as fit.
func (m *Memory) Elements(t Type) Buffer {
	if t.Bytes() == 0 {
		return Buffer{}
	}
	return Buffer{m: m, kind: t, count: m.bytes / t.Bytes()}
}

// Part returns count elements of the buffer from first on.
func (b Buffer) Part(first, count int) (Buffer, error) {
	if first < 0 || count < 0 || first > b.count-count {
		return Buffer{}, argument("part of %d elements from %d on, of a buffer of %d", count, first, b.count)
	}
	return Buffer{b.m, b.offset + first*b.kind.Bytes(), b.kind, count}, nil
}

// Type returns the type of the elements.
func (b Buffer) Type() Type { return b.kind }

// Len returns the number of elements.
func (b Buffer) Len() int { return b.count }

// Memory returns the memory that the elements are in.
func (b Buffer) Memory() *Memory { return b.m }

// Bytes returns the size of all elements in bytes.
func (b Buffer) Bytes() int { return b.count * b.kind.Bytes() }

func (b Buffer) address() abi.Handle {
	if b.m == nil {
		return 0
	}
	return b.m.address + abi.Handle(b.offset)
}

// usable is an error for memory that this device cannot use.
func (b Buffer) usable(d *Device) error {
	switch {
	case b.m == nil:
		return argument("buffer of no memory")
	case b.m.d != d:
		return argument("buffer on device %d, must be on %d", b.m.d.index, d.index)
	case b.m.freed.Load():
		return argument("buffer of memory that was freed")
	}
	return nil
}

// Host is memory of the host that the device copies from and to by itself.
type Host struct {
	d       *Device
	address abi.Handle
	memory  []byte
}

// AllocHost allocates memory of the host for copies in the background.
func (d *Device) AllocHost(ctx context.Context, bytes int) (*Host, error) {
	if bytes <= 0 {
		return nil, argument("allocation of %d bytes of the host, must be positive", bytes)
	}
	h := &Host{d: d}
	if err := d.do(ctx, func() error { return h.alloc(bytes) }); err != nil {
		return nil, err
	}
	return h, nil
}

// alloc is of the thread.
func (h *Host) alloc(bytes int) error {
	address, code := h.d.lib.abi.HostAlloc(bytes)
	if code != success {
		return h.d.lib.runtimeError("allocate host memory", code)
	}
	h.address, h.memory = address, h.d.lib.abi.Host(address, bytes)
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.d.hosts = append(h.d.hosts, h)
	return nil
}

// Bytes returns the memory. It must not be used after Free.
func (h *Host) Bytes() []byte { return h.memory }

// Free gives the memory back, when nothing is under way on the device.
func (h *Host) Free(ctx context.Context) error {
	return h.d.whenIdle(ctx, h.free)
}

// free is of the thread.
func (h *Host) free() error {
	h.d.mu.Lock()
	i := slices.Index(h.d.hosts, h)
	if i >= 0 {
		h.d.hosts = slices.Delete(h.d.hosts, i, i+1)
	}
	h.d.mu.Unlock()
	if i < 0 {
		return nil
	}
	return h.d.lib.check("free host memory", h.d.lib.abi.HostFree(h.address))
}

// hostAddress is where a slice lies, if that is in memory that the device copies from and
// to by itself.
func (d *Device) hostAddress(b []byte) (abi.Handle, bool) {
	if len(b) == 0 {
		return 0, false
	}
	first := abi.Handle(unsafe.Pointer(unsafe.SliceData(b)))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.hosts {
		if first >= h.address && first+abi.Handle(len(b)) <= h.address+abi.Handle(len(h.memory)) {
			return first, true
		}
	}
	return 0, false
}
