package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// writeBytes is the size of the writes that a Writer makes.
const writeBytes = 1 << 20

// File is one entry of a manifest: a file of shards.
type File struct {
	Name   string // within the checkpoint
	Bytes  int64
	CRC32C uint32 // of the header and the checksums of all tensors
	Shards []shard.ID
}

// WriteFile writes a file of a checkpoint: the states of shards, which must ascend by ID, and
// the values of the blocks that they name, which fill writes. Memory does not grow with the
// blocks: they go to the storage as they come. The file does not belong to the checkpoint
// before Commit. A file of the same name is replaced: give each attempt a name of its own, so that a
// late one does not change what has been committed. It is an error when fill leaves out a block; its
// own error is returned wrapped. Equal arguments and values give equal bytes. Errors are *Error.
func WriteFile(ctx context.Context, s Storage, checkpoint, file string, shards []Shard, fill func(*Writer) error) (File, error) {
	wrap := func(err error) (File, error) { return File{}, &Error{checkpoint, file, "", err} }
	if _, err := numberOf(checkpoint); err != nil {
		return wrap(err)
	}
	if err := checkFileName(file); err != nil {
		return wrap(err)
	}
	entries := make([]entry, len(shards))
	for i := range shards {
		entries[i] = entryOf(&shards[i])
	}
	l, err := layoutOf(entries)
	if err != nil {
		return wrap(err)
	}
	head, err := encodeHeader(l.header)
	if err != nil {
		return wrap(err)
	}
	if len(head)-sizeBytes > MaxHeaderBytes {
		return wrap(fmt.Errorf("header of %d bytes, limit %d: write several files", len(head)-sizeBytes, MaxHeaderBytes))
	}
	sum := kernel.CRC32C(0, head)
	size := int64(len(head)) + l.bytes
	err = s.Put(ctx, checkpoint+"/"+file, size, func(out io.Writer) error {
		w := &Writer{l: l, out: out, room: make([]byte, 0, min(size, writeBytes)), sums: make([]byte, 0, 4*l.sums.tensor)}
		w.write(0, head)
		if err := fill(w); err != nil {
			return err
		}
		sum, err = w.finish(shards, sum)
		return err
	})
	if err != nil {
		return wrap(err)
	}
	return l.file(file, size, sum), nil
}

// file is the entry of the manifest.
func (l *layout) file(name string, size int64, sum uint32) File {
	f := File{Name: name, Bytes: size, CRC32C: sum, Shards: make([]shard.ID, len(l.shards))}
	for i := range l.shards {
		f.Shards[i] = l.shards[i].ID
	}
	return f
}

// Writer takes the values of a file of shards. It belongs to one goroutine and is of use
// within WriteFile only.
type Writer struct {
	l     *layout
	out   io.Writer
	room  []byte // gathers what is written next
	sums  []byte
	shard int // whose block is next
	block int // number of it among those of the shard
	err   error
}

// write writes b and returns the checksum of it behind what has that sum. An error stays in w.err.
func (w *Writer) write(sum uint32, b []byte) uint32 {
	for len(b) > 0 && w.err == nil {
		used := len(w.room)
		n := min(len(b), cap(w.room)-used)
		w.room = w.room[:used+n]
		sum = kernel.CopyCRC32C(sum, w.room[used:], b[:n])
		b = b[n:]
		if len(w.room) == cap(w.room) {
			w.flush()
		}
	}
	return sum
}

func (w *Writer) flush() {
	if w.err == nil && len(w.room) > 0 {
		_, w.err = w.out.Write(w.room)
		w.room = w.room[:0]
	}
}

// tensor writes one tensor, which is the parts one after the other, and notes its checksum.
func (w *Writer) tensor(parts ...[]byte) {
	sum := uint32(0)
	for _, b := range parts {
		sum = w.write(sum, b)
	}
	w.sums = binary.LittleEndian.AppendUint32(w.sums, sum)
}

// next moves to the next block to be written and returns its shard; nil at the end.
func (w *Writer) next() *entry {
	for ; w.shard < len(w.l.shards); w.shard, w.block = w.shard+1, 0 {
		if e := &w.l.shards[w.shard]; w.block < len(e.Blocks) {
			return e
		}
	}
	return nil
}

// WriteBlock writes the values of one block of a dense layer: its weights and its slots in the order of
// Shard.Slots, all as long as the block. Blocks come in the order of the shards and of
// Shard.Blocks. The slices are not kept. After an error the file is given up.
func (w *Writer) WriteBlock(id shard.ID, block int, weights []float32, slots ...[]float32) error {
	e, err := w.turn(id, block)
	if err != nil {
		return err
	}
	if e.Dim != 0 {
		return w.refuse("block %d of shard %d has rows, which WriteRows writes", block, id)
	}
	n := e.blockElems(block)
	if len(slots) != len(e.Slots) {
		return w.refuse("block %d of shard %d with %d slots, must be %d", block, id, len(slots), len(e.Slots))
	}
	for i := range 1 + len(slots) {
		values := weights
		if i > 0 {
			values = slots[i-1]
		}
		if len(values) != n {
			return w.refuse("array %d of block %d of shard %d has %d elements, must be %d", i, block, id, len(values), n)
		}
		w.tensor(wire.Bytes(values))
	}
	w.block++
	return w.err
}

// turn returns the shard if its block is the next to be written.
func (w *Writer) turn(id shard.ID, block int) (*entry, error) {
	if w.err != nil {
		return nil, w.err
	}
	e := w.next()
	if e == nil || e.ID != id || e.Blocks[w.block] != block {
		return nil, w.refuse("block %d of shard %d is out of turn, %s", block, id, w.expected())
	}
	return e, nil
}

// refuse gives the file up.
func (w *Writer) refuse(format string, args ...any) error {
	w.err = fmt.Errorf(format, args...)
	return w.err
}

// expected says which block is next.
func (w *Writer) expected() string {
	if e := w.next(); e != nil {
		return fmt.Sprintf("block %d of shard %d is next", e.Blocks[w.block], e.ID)
	}
	return "all have been written"
}

// finish writes what comes behind the values, and returns the sum of the file that begins
// with that of its header.
func (w *Writer) finish(shards []Shard, sum uint32) (uint32, error) {
	if w.err != nil {
		return 0, w.err
	}
	if w.next() != nil {
		return 0, fmt.Errorf("not all blocks were written, %s", w.expected())
	}
	for i := range shards {
		w.tensor(shards[i].Windows)
		w.tensor(shards[i].BlockState)
	}
	w.write(0, w.sums)
	w.flush()
	return kernel.CRC32C(sum, w.sums), w.err
}
