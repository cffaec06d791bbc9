package checkpoint

import (
	"context"
	"encoding/binary"

	"github.com/elasticps/elasticps/internal/kernel"
)

// openFile is a file of shards whose header and checksums have been read.
type openFile struct {
	*layout
	checkpoint, name string
	data             int64  // offset of the tensors
	sums             []byte // checksums of the tensors
	description      File
}

// readFile reads what is in front of and behind the tensors of a file of that many bytes.
func readFile(ctx context.Context, s Storage, checkpoint, name string, size int64) (*openFile, error) {
	damaged := func(format string, args ...any) (*openFile, error) {
		return nil, fault(checkpoint, name, "", ErrDamaged, format, args...)
	}
	object := checkpoint + "/" + name
	var length [sizeBytes]byte
	if err := s.Read(ctx, object, 0, length[:]); err != nil {
		return nil, lost(checkpoint, name, err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > MaxHeaderBytes || int64(n) > size-sizeBytes {
		return damaged("header of %d bytes, limit %d in a file of %d", n, MaxHeaderBytes, size)
	}
	head := make([]byte, n)
	if err := s.Read(ctx, object, sizeBytes, head); err != nil {
		return nil, lost(checkpoint, name, err)
	}
	l, err := decodeLayout(head)
	if err != nil {
		return nil, &Error{checkpoint, name, "", err}
	}
	data := sizeBytes + int64(n)
	if size != data+l.bytes {
		return damaged("%d bytes, its header says %d", size, data+l.bytes)
	}
	sums := make([]byte, 4*l.sums.tensor)
	if err := s.Read(ctx, object, data+l.sums.offset, sums); err != nil {
		return nil, lost(checkpoint, name, err)
	}
	sum := kernel.CRC32C(kernel.CRC32C(kernel.CRC32C(0, length[:]), head), sums)
	return &openFile{layout: l, checkpoint: checkpoint, name: name, data: data, sums: sums, description: l.file(name, size, sum)}, nil
}

// Describe reads back what WriteFile returned for a file, on any host that shares the storage: whoever
// commits learns from it that the file has arrived, and needs no more from its writer than the name. It
// reads the header and the checksums. Errors are *Error: ErrNotFound, ErrDamaged, ErrNewer.
func Describe(ctx context.Context, s Storage, checkpoint, file string) (File, error) {
	if _, err := numberOf(checkpoint); err != nil {
		return File{}, &Error{checkpoint, file, "", err}
	}
	if err := checkFileName(file); err != nil {
		return File{}, &Error{checkpoint, file, "", err}
	}
	objects, err := s.List(ctx, checkpoint+"/"+file)
	if err != nil {
		return File{}, &Error{checkpoint, file, "", err}
	}
	size, ok := sizeOf(objects, checkpoint+"/"+file)
	if !ok {
		return File{}, fault(checkpoint, file, "", ErrNotFound, "no such file")
	}
	f, err := readFile(ctx, s, checkpoint, file, size)
	if err != nil {
		return File{}, err
	}
	return f.description, nil
}

// verify compares consecutive tensors, which b holds, with their checksums.
func (f *openFile) verify(part string, first int, b []byte, sizes ...int) error {
	for i, n := range sizes {
		have, want := kernel.CRC32C(0, b[:n]), binary.LittleEndian.Uint32(f.sums[4*(first+i):])
		if have != want {
			return fault(f.checkpoint, f.name, part, ErrDamaged, "checksum %08x of tensor %d, must be %08x", have, first+i, want)
		}
		b = b[n:]
	}
	return nil
}

// read fills p with the data of tensors from offset on.
func (f *openFile) read(ctx context.Context, s Storage, offset int64, p []byte) error {
	if err := s.Read(ctx, f.checkpoint+"/"+f.name, f.data+offset, p); err != nil {
		return lost(f.checkpoint, f.name, err)
	}
	return nil
}

// shard reads the state of a shard.
func (f *openFile) shard(ctx context.Context, s Storage, number int) (Shard, error) {
	e, at := &f.shards[number], f.state(number)
	b := make([]byte, e.Windows+e.BlockState)
	if err := f.read(ctx, s, at.offset, b); err != nil {
		return Shard{}, err
	}
	if err := f.verify(e.part(), at.tensor, b, e.Windows, e.BlockState); err != nil {
		return Shard{}, err
	}
	state := e.shard()
	state.Windows, state.BlockState = b[:e.Windows:e.Windows], b[e.Windows:]
	return state, nil
}
