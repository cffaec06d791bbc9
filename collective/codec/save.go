package codec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// What Save writes, all little endian: the magic, the version, the number of tensors; of each
// the length of its name (2 bytes), the name, rank and size of its place (4 bytes each),
// the number of elements (8 bytes), the elements; at the end the SHA-256 of everything before.
// Names ascend.
const (
	savedMagic   = "EPSRESID"
	savedVersion = 1
	savedHead    = len(savedMagic) + 4 + 4
	tensorHead   = 4 + 4 + 8
)

// Save returns all residuals, for a checkpoint, with a digest. It waits for those that
// somebody holds.
func (f *Feedback) Save() []byte {
	all := f.Tensors()
	le := binary.LittleEndian
	out := le.AppendUint32([]byte(savedMagic), savedVersion)
	out = le.AppendUint32(out, uint32(len(all)))
	f.mu.Lock()
	defer f.mu.Unlock()
	saved := uint32(0)
	for _, one := range all {
		for f.anyHeld([]Tensor{one}) {
			f.free.Wait()
		}
		t := f.tensors[one.Name]
		if t == nil {
			continue // forgotten in the meantime
		}
		saved++
		out = le.AppendUint16(out, uint16(len(one.Name)))
		out = append(out, one.Name...)
		out = le.AppendUint32(out, uint32(t.run.place.Rank))
		out = le.AppendUint32(out, uint32(t.run.place.Size))
		out = le.AppendUint64(out, uint64(t.len))
		for _, x := range t.values() {
			out = le.AppendUint32(out, math.Float32bits(x))
		}
	}
	le.PutUint32(out[savedHead-4:], saved)
	sum := sha256.Sum256(out)
	return append(out, sum[:]...)
}

// Load replaces all residuals by those that Save has returned. They go on where the group has
// as many ranks as then and this rank is the same; else they begin at zero. After an error,
// which wraps ErrCorrupt, everything is as it was.
func (f *Feedback) Load(saved []byte) error {
	body := len(saved) - sha256.Size
	if body < savedHead || string(saved[:len(savedMagic)]) != savedMagic {
		return fmt.Errorf("%w: %d bytes are no saved residuals", ErrCorrupt, len(saved))
	}
	le := binary.LittleEndian
	if v := le.Uint32(saved[len(savedMagic):]); v != savedVersion {
		return fmt.Errorf("%w: saved residuals have version %d, must be %d", ErrCorrupt, v, savedVersion)
	}
	if sum := sha256.Sum256(saved[:body]); !bytes.Equal(sum[:], saved[body:]) {
		return fmt.Errorf("%w: digest of saved residuals", ErrCorrupt)
	}
	count, rest := le.Uint32(saved[savedHead-4:]), saved[savedHead:body]
	tensors, last := map[string]*tensor{}, ""
	for i := range count {
		name, t, after, err := loadTensor(rest)
		if err == nil && name <= last {
			err = fmt.Errorf("its name %q does not follow %q", name, last)
		}
		if err != nil {
			return fmt.Errorf("%w: saved tensor %d of %d: %w", ErrCorrupt, i, count, err)
		}
		tensors[name], rest, last = t, after, name
	}
	if len(rest) > 0 || count > MaxTensors {
		return fmt.Errorf("%w: %d saved tensors, at most %d, and %d bytes behind them", ErrCorrupt, count, MaxTensors, len(rest))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tensors, f.free.L = tensors, &f.mu
	return nil
}

// loadTensor takes one tensor from the front of b.
func loadTensor(b []byte) (name string, t *tensor, rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < 2 {
		return "", nil, nil, fmt.Errorf("%d bytes are left", len(b))
	}
	n := int(le.Uint16(b))
	if b = b[2:]; n == 0 || n > MaxNameBytes || len(b) < n+tensorHead {
		return "", nil, nil, fmt.Errorf("name of %d bytes, must be 1 to %d, %d are left", n, MaxNameBytes, len(b))
	}
	name, b = string(b[:n]), b[n:]
	r := &run{place: Place{Rank: int(le.Uint32(b)), Size: int(le.Uint32(b[4:]))}, loaded: true}
	elements := le.Uint64(b[8:])
	if b = b[tensorHead:]; elements > uint64(len(b)/4) {
		return "", nil, nil, fmt.Errorf("%q has %d elements and %d bytes are left", name, elements, len(b))
	}
	r.values = make([]float32, elements)
	for i := range r.values {
		x := math.Float32frombits(le.Uint32(b[4*i:]))
		if x-x != 0 {
			return "", nil, nil, fmt.Errorf("element %d of %q is %g, must be finite", i, name, x)
		}
		r.values[i] = x
	}
	return name, &tensor{r, 0, len(r.values)}, b[4*len(r.values):], nil
}
