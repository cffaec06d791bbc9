package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// readBytes is about how much is read at once.
const readBytes = 4 << 20

// Checkpoint is a committed checkpoint, opened for reading. Its methods may be called from any
// number of goroutines. It holds no files open.
type Checkpoint struct {
	storage Storage
	chain   []*level // the newest first, the full one last
}

// room is what one call reads into, one read after the other.
type room []byte

// of returns so many bytes of it, which hold anything.
func (r *room) of(n int64) []byte {
	if int64(cap(*r)) < n {
		*r = make([]byte, n)
	}
	return (*r)[:n]
}

// level is one checkpoint of the chain that a restored one is put together from.
type level struct {
	Manifest
	digest string
	fileOf []int // by shard: index of its file

	mu     sync.Mutex
	loaded map[int]*openFile
}

// Open reads the manifest of a checkpoint and of those before it that it is an increment to,
// and compares the lengths of their files. It does not read the files: what is wrong in them
// shows in ReadShard or Verify. Errors are *Error. They wrap ErrNotFound when there is no such
// checkpoint, ErrNewer, and ErrDamaged otherwise, unless the storage fails.
func Open(ctx context.Context, s Storage, name string) (*Checkpoint, error) {
	c := &Checkpoint{storage: s}
	for want := (&Ref{Name: name}); want != nil; {
		if len(c.chain) == MaxChain {
			return nil, fault(name, "", "", ErrDamaged, "it has more than %d ancestors", MaxChain-1)
		}
		l, err := readLevel(ctx, s, want.Name)
		if err == nil && want.SHA256 != "" && want.SHA256 != l.digest {
			err = fault(want.Name, manifestName, "", ErrDamaged, "digest is %s, its increment is to %s", l.digest, want.SHA256)
		}
		if err == nil && len(c.chain) > 0 {
			err = l.sameCut(&c.chain[0].Manifest)
		}
		if err != nil && len(c.chain) > 0 {
			if errors.Is(err, ErrNotFound) {
				err = fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			err = &Error{name, "", "increment to " + want.Name, err}
		}
		if err != nil {
			return nil, err
		}
		c.chain = append(c.chain, l)
		want = l.Parent
	}
	return c, nil
}

// readLevel reads one manifest and compares it with the objects that are there.
func readLevel(ctx context.Context, s Storage, name string) (*level, error) {
	l, objects, err := readManifest(ctx, s, name)
	if err != nil {
		return nil, err
	}
	l.fileOf = make([]int, len(l.Shards))
	for i, f := range l.Files {
		size, ok := sizeOf(objects, name+"/"+f.Name)
		if !ok {
			return nil, fault(name, f.Name, "", ErrDamaged, "the file is missing")
		}
		if size != f.Bytes {
			return nil, fault(name, f.Name, "", ErrDamaged, "%d bytes, must be %d", size, f.Bytes)
		}
		for _, id := range f.Shards {
			l.fileOf[id] = i
		}
	}
	return l, nil
}

// readManifest reads the manifest of a checkpoint and lists the objects of it.
func readManifest(ctx context.Context, s Storage, name string) (*level, []Object, error) {
	if _, err := numberOf(name); err != nil {
		return nil, nil, &Error{name, "", "", err}
	}
	objects, err := s.List(ctx, name+"/")
	if err != nil {
		return nil, nil, &Error{name, "", "", err}
	}
	size, ok := sizeOf(objects, name+"/"+manifestName)
	if !ok {
		return nil, nil, fault(name, manifestName, "", ErrNotFound, "no checkpoint, or an unfinished one")
	}
	if size > MaxManifestBytes {
		return nil, nil, fault(name, manifestName, "", ErrDamaged, "%d bytes, limit %d", size, MaxManifestBytes)
	}
	text := make([]byte, size)
	if err := s.Read(ctx, name+"/"+manifestName, 0, text); err != nil {
		return nil, nil, lost(name, manifestName, err)
	}
	m, digest, err := decodeManifest(text)
	if err != nil {
		return nil, nil, &Error{name, manifestName, "", err}
	}
	if m.Name != name {
		return nil, nil, fault(name, manifestName, "", ErrDamaged, "it is that of %s", m.Name)
	}
	return &level{Manifest: m, digest: digest, loaded: make(map[int]*openFile)}, objects, nil
}

// sizeOf finds an object in a list.
func sizeOf(objects []Object, name string) (int64, bool) {
	i, ok := slices.BinarySearchFunc(objects, name, func(o Object, name string) int { return cmp.Compare(o.Name, name) })
	if !ok {
		return 0, false
	}
	return objects[i].Bytes, true
}

// sameCut reports when l cannot be what next is an increment to.
func (l *level) sameCut(next *Manifest) error {
	if err := differences(l.Model, next.Model); err != nil {
		return fault(l.Name, manifestName, "", ErrDamaged, "another model than %s: %v", next.Name, err)
	}
	if !slices.Equal(l.Shards, next.Shards) {
		return fault(l.Name, manifestName, "", ErrDamaged, "other shards than %s", next.Name)
	}
	return nil
}

// differences reports the first difference of names, shapes, element types and sparseness.
func differences(have, want shard.Model) error {
	if len(have.Layers) != len(want.Layers) {
		return fmt.Errorf("%d layers, must be %d", len(have.Layers), len(want.Layers))
	}
	for i, h := range have.Layers {
		switch w := want.Layers[i]; {
		case h.Name != w.Name:
			return fmt.Errorf("layer %d is %q, must be %q", i, h.Name, w.Name)
		case !slices.Equal(h.Shape, w.Shape):
			return fmt.Errorf("layer %q has shape %v, must be %v", h.Name, h.Shape, w.Shape)
		case h.DType != w.DType:
			return fmt.Errorf("layer %q has elements of %v, must be %v", h.Name, h.DType, w.DType)
		case h.Sparse != w.Sparse:
			return fmt.Errorf("layer %q is sparse: %t, must be %t", h.Name, h.Sparse, w.Sparse)
		}
	}
	return nil
}

// Manifest returns the manifest of the checkpoint, which must not be changed.
func (c *Checkpoint) Manifest() Manifest { return c.chain[0].Manifest }

// Ref returns what an increment to the checkpoint has as its parent.
func (c *Checkpoint) Ref() Ref { return Ref{c.chain[0].Name, c.chain[0].digest} }

// Chain returns the names of the checkpoints that it is put together from, the newest, which
// is its own, first.
func (c *Checkpoint) Chain() []string {
	names := make([]string, len(c.chain))
	for i, l := range c.chain {
		names[i] = l.Name
	}
	return names
}

// Match returns an *Error that wraps ErrMismatch and names the first difference unless the
// checkpoint is of a model with these layers: names, shapes, element types, sparse or dense, order.
func (c *Checkpoint) Match(m shard.Model) error {
	if err := differences(c.chain[0].Model, m); err != nil {
		return fault(c.chain[0].Name, "", "", ErrMismatch, "%v", err)
	}
	return nil
}

// file returns the file of a shard in a level, and the number of the shard there.
func (c *Checkpoint) file(ctx context.Context, l *level, id shard.ID) (*openFile, int, error) {
	if int64(id) >= int64(len(l.Shards)) {
		return nil, 0, fault(l.Name, "", fmt.Sprintf("shard %d", id), ErrNotFound, "it has %d shards", len(l.Shards))
	}
	f, err := c.load(ctx, l, l.fileOf[id])
	if err != nil {
		return nil, 0, err
	}
	number, _ := f.find(id) // load has compared the lists
	return f, number, nil
}

// load reads the header of a file unless it has been read.
func (c *Checkpoint) load(ctx context.Context, l *level, index int) (*openFile, error) {
	l.mu.Lock()
	f := l.loaded[index]
	l.mu.Unlock()
	if f != nil {
		return f, nil
	}
	want := l.Files[index]
	f, err := readFile(ctx, c.storage, l.Name, want.Name, want.Bytes)
	if errors.Is(err, ErrNewer) {
		return nil, fault(l.Name, want.Name, "", ErrDamaged, "%v in a checkpoint of version %d", err, formatVersion)
	}
	if err != nil {
		return nil, err
	}
	if have := f.description.CRC32C; have != want.CRC32C {
		return nil, fault(l.Name, want.Name, "", ErrDamaged, "checksum %08x, must be %08x", have, want.CRC32C)
	}
	if !slices.Equal(f.description.Shards, want.Shards) {
		return nil, fault(l.Name, want.Name, "", ErrDamaged, "other shards than in the manifest")
	}
	for i := range f.shards {
		if err := l.check(&f.shards[i]); err != nil {
			return nil, fault(l.Name, want.Name, f.shards[i].part(), ErrDamaged, "%v", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded[index] = f
	return f, nil
}

// check compares a shard with the manifest.
func (l *level) check(e *entry) error {
	want := l.Shards[e.ID].Range
	layer := &l.Model.Layers[want.Layer]
	if e.Layer != layer.Name || e.Begin != want.Begin || e.End != want.End {
		return fmt.Errorf("[%d, %d) of %q, must be [%d, %d) of %q", e.Begin, e.End, e.Layer, want.Begin, want.End, layer.Name)
	}
	if dim := dimOf(layer); e.Dim != dim {
		return fmt.Errorf("rows of %d values of %q, must be %d (0: dense)", e.Dim, e.Layer, dim)
	}
	if l.Parent == nil && len(e.Blocks) != e.numBlocks() {
		return fmt.Errorf("%d blocks of %d in a full checkpoint", len(e.Blocks), e.numBlocks())
	}
	return nil
}

// dimOf is the number of values of a row of a sparse layer, 0 of a dense one.
func dimOf(l *shard.Layer) int {
	if l.Sparse {
		return l.Shape[1]
	}
	return 0
}

// Shard returns the state of a shard, without its values. Blocks are those that the newest
// increment holds. Errors are *Error: ErrNotFound when there is no such shard, ErrDamaged.
func (c *Checkpoint) Shard(ctx context.Context, id shard.ID) (Shard, error) {
	f, number, err := c.file(ctx, c.chain[0], id)
	if err != nil {
		return Shard{}, err
	}
	return f.shard(ctx, c.storage, number)
}

// ReadShard fills weights and slots, which are as long as the shard and in the order of
// Shard.Slots, and returns the shard's state. slots are named, so that those of another
// optimizer are refused (ErrMismatch). After an error the slices hold anything. It reads some
// MiB at a time and checks each block before it is used. Errors are *Error.
func (c *Checkpoint) ReadShard(ctx context.Context, id shard.ID, weights []float32, names []string, slots ...[]float32) (Shard, error) {
	s, err := c.Shard(ctx, id)
	if err != nil {
		return s, err
	}
	refuse := func(format string, args ...any) (Shard, error) {
		return Shard{}, fault(c.chain[0].Name, "", fmt.Sprintf("shard %d", id), ErrMismatch, format, args...)
	}
	if s.Dim != 0 {
		return refuse("it is of a sparse layer, which ReadRows reads")
	}
	if !slices.Equal(s.Slots, names) || len(slots) != len(names) {
		return refuse("slots %q, %q wanted for %d arrays", s.Slots, names, len(slots))
	}
	arrays := append([][]float32{weights}, slots...)
	for i, a := range arrays {
		if int64(len(a)) != s.End-s.Begin {
			return refuse("%d elements, array %d has room for %d", s.End-s.Begin, i, len(a))
		}
	}
	err = c.read(ctx, new(room), id, 0, s.End-s.Begin, func(lo int64, n int, values []byte) {
		for _, a := range arrays {
			copy(wire.Bytes(a[lo:lo+int64(n)]), values[:4*n])
			values = values[4*n:]
		}
	})
	if err != nil {
		return Shard{}, err
	}
	return s, nil
}

// ReadWeights fills dst with the weights of a layer from element begin on, whatever shards
// they are in. Errors are *Error: ErrMismatch when the layer has no such elements or is sparse
// (ReadTable), ErrDamaged.
func (c *Checkpoint) ReadWeights(ctx context.Context, layer string, begin int64, dst []float32) error {
	return c.readWeights(ctx, new(room), layer, begin, dst)
}

// readWeights is ReadWeights with the caller's room.
func (c *Checkpoint) readWeights(ctx context.Context, into *room, layer string, begin int64, dst []float32) error {
	m := &c.chain[0].Manifest
	index, ok := m.Model.Index(layer)
	end := begin + int64(len(dst))
	if !ok {
		return fault(m.Name, "", fmt.Sprintf("layer %.64q", layer), ErrMismatch, "no such layer")
	}
	if m.Model.Layers[index].Sparse {
		return fault(m.Name, "", fmt.Sprintf("layer %.64q", layer), ErrMismatch, "it is sparse, ReadTable reads it")
	}
	if n := m.Model.Layers[index].Elems(); begin < 0 || end > n {
		return fault(m.Name, "", fmt.Sprintf("layer %.64q", layer), ErrMismatch, "elements [%d, %d), it has %d", begin, end, n)
	}
	first, _ := slices.BinarySearchFunc(m.Shards, begin, func(s shard.Shard, at int64) int {
		if s.Range.Layer != index {
			return cmp.Compare(s.Range.Layer, index)
		}
		if s.Range.End <= at {
			return -1
		}
		return cmp.Compare(max(s.Range.Begin, at), at)
	})
	for i := first; begin < end; i++ {
		r := m.Shards[i].Range
		stop := min(end, r.End)
		err := c.read(ctx, into, m.Shards[i].ID, begin-r.Begin, stop-r.Begin, func(lo int64, n int, values []byte) {
			from, to := max(begin-r.Begin, lo), min(stop-r.Begin, lo+int64(n))
			out := dst[from+r.Begin-begin : to+r.Begin-begin]
			copy(wire.Bytes(out), values[4*(from-lo):4*(to-lo)])
		})
		if err != nil {
			return err
		}
		dst, begin = dst[stop-begin:], stop
	}
	return nil
}

// source says where the values of a block are.
type source struct {
	file   *openFile
	number int // of the shard in the file
	index  int // of the block among those of the shard in the file
}

func (s source) entry() *entry { return &s.file.shards[s.number] }

func (s source) block() int { return s.entry().Blocks[s.index] }

// span is where the block is in the data of the file.
func (s source) span() (begin, end int64) {
	at := s.file.blocks[s.number][s.index:]
	return at[0], at[1]
}

// sources finds blocks [first, end) of a shard, each in the newest level that has it.
func (c *Checkpoint) sources(ctx context.Context, id shard.ID, first, end int) ([]source, error) {
	found := make([]source, end-first)
	missing := len(found)
	var newest *entry
	for i, l := range c.chain {
		if missing == 0 {
			break
		}
		f, number, err := c.file(ctx, l, id)
		if err != nil {
			return nil, err
		}
		e := &f.shards[number]
		if i == 0 {
			newest = e
		}
		if !slices.Equal(newest.Slots, e.Slots) || !slices.Equal(newest.SlotElems, e.SlotElems) {
			return nil, fault(l.Name, f.name, e.part(), ErrDamaged, "slots %q of %d values, increments to it have %q of %d", e.Slots, e.SlotElems, newest.Slots, newest.SlotElems)
		}
		from, _ := slices.BinarySearch(e.Blocks, first)
		for index := from; index < len(e.Blocks) && e.Blocks[index] < end; index++ {
			if at := &found[e.Blocks[index]-first]; at.file == nil {
				*at = source{f, number, index}
				missing--
			}
		}
	}
	return found, nil // a full level has every block: none is missing
}

// read reads the blocks of a dense shard that elements [begin, end) of it touch, and calls visit
// for each with its first element, its number of elements and its weights and slots one after the
// other, which visit does not keep.
func (c *Checkpoint) read(ctx context.Context, into *room, id shard.ID, begin, end int64, visit func(lo int64, n int, values []byte)) error {
	found, err := c.sources(ctx, id, int(begin/BlockElems), int((end+BlockElems-1)/BlockElems))
	if err != nil {
		return err
	}
	return c.readBlocks(ctx, into, found, func(s source, values []byte, _ []int) error {
		visit(int64(s.block())*BlockElems, s.entry().blockElems(s.block()), values)
		return nil
	})
}

// readBlocks reads blocks of one shard, those that lie together at once, and calls visit for each,
// when it has been verified, with its tensors and their lengths, which visit does not keep.
func (c *Checkpoint) readBlocks(ctx context.Context, into *room, list []source, visit func(s source, values []byte, sizes []int) error) error {
	var sizes []int
	for len(list) > 0 {
		file, n := list[0].file, 1
		begin, end := list[0].span()
		for ; n < len(list) && list[n].file == file && list[n].index == list[0].index+n; n++ {
			_, next := list[n].span()
			if next-begin > readBytes {
				break
			}
			end = next
		}
		read := into.of(end - begin)
		if err := file.read(ctx, c.storage, begin, read); err != nil {
			return err
		}
		for _, s := range list[:n] {
			from, to := s.span()
			values, where := read[from-begin:to-begin], file.values(s.number, s.index)
			sizes = s.entry().appendSizes(sizes[:0], s.index, from)
			if err := file.verify(fmt.Sprintf("block %d of shard %d", s.block(), s.entry().ID), where.tensor, values, sizes...); err != nil {
				return err
			}
			if err := visit(s, values, sizes); err != nil {
				return err
			}
		}
		list = list[n:]
	}
	return nil
}

// Verify reads every byte of the checkpoint and of those before it that it is an increment
// to, and compares all checksums. Errors are those of Open. It takes as long as the storage
// takes to read them; of the values it holds some MiB at a time.
func (c *Checkpoint) Verify(ctx context.Context) error {
	into := new(room)
	for _, l := range c.chain {
		for i := range l.Files {
			f, err := c.load(ctx, l, i)
			if err != nil {
				return err
			}
			for number := range f.shards {
				list := make([]source, len(f.shards[number].Blocks))
				for index := range list {
					list[index] = source{f, number, index}
				}
				if err := c.readBlocks(ctx, into, list, func(source, []byte, []int) error { return nil }); err != nil {
					return err
				}
				if _, err := f.shard(ctx, c.storage, number); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
