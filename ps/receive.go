package ps

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

const blockMetaBytes = 24

var errStream = errors.New("ps: follower stream out of order")

// receiveProgress is how far a follower has got.
type receiveProgress struct {
	frames   uint64 // frames taken; each must have the next number
	blocks   int    // blocks complete
	sections int    // of the block under way, still to come; 0 between blocks
	seal     []byte
}

// receive takes one frame of a follower stream, whose payload is viewed as values too,
// and keeps neither. It returns true after the last.
func (r *replica) receive(attempt uint64, h *wire.Header, payload []byte, values []float32) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.progress
	if _, err := r.copy.Fill(attempt, false); err != nil || r.copy.State == shard.Complete {
		return false, fmt.Errorf("%w: shard %d: the copy is %v: %w", errStream, h.Shard, r.copy.State, err)
	}
	if h.Request != p.frames+1 {
		return false, fmt.Errorf("%w: frame %d of shard %d, expected %d", errStream, h.Request, h.Shard, p.frames+1)
	}
	p.frames++
	switch h.Kind {
	case wire.BlockMeta:
		err = r.receiveMeta(h, payload)
	case wire.Block:
		err = r.receiveSection(h, values)
	case wire.Forward:
		err = r.receiveForward(h, values)
	case wire.Seal:
		return r.receiveSeal(h, payload)
	default:
		err = fmt.Errorf("%w: frame of kind %d", errStream, h.Kind)
	}
	return false, err
}

func (r *replica) receiveMeta(h *wire.Header, payload []byte) error {
	p := &r.progress
	if p.sections != 0 || p.blocks >= len(r.blocks) || h.Offset != uint64(p.blocks)*BlockElems || h.Length != blockMetaBytes {
		return fmt.Errorf("%w: block at %d, expected block %d of %d", errStream, h.Offset, p.blocks, len(r.blocks))
	}
	m := decodeBlock(payload)
	r.blocks[p.blocks] = m
	p.sections = 1 + len(r.slots)
	if m.dirty > 0 {
		p.sections++
	}
	return nil
}

func (r *replica) receiveSection(h *wire.Header, values []float32) error {
	p := &r.progress
	array, err := r.array(h.Code)
	if err != nil {
		return err
	}
	if p.sections == 0 {
		return fmt.Errorf("%w: section without block", errStream)
	}
	lo, hi := r.bounds(p.blocks)
	if h.Offset != uint64(lo) || int64(h.Count) != hi-lo || h.Length != 4*h.Count {
		return fmt.Errorf("%w: %d elements at %d, expected [%d, %d)", errStream, h.Count, h.Offset, lo, hi)
	}
	copy(array[lo:hi], values)
	p.sections--
	if p.sections == 0 {
		p.blocks++
	}
	return nil
}

// array is the array that a section number names.
func (r *replica) array(section uint8) ([]float32, error) {
	switch {
	case section == 0:
		return r.weights, nil
	case section == sumSection && r.bsp:
		return r.sum, nil
	case int(section) <= len(r.slots):
		return r.slots[section-1], nil
	}
	return nil, fmt.Errorf("%w: section %d of %d slots", errStream, section, len(r.slots))
}

func (r *replica) receiveForward(h *wire.Header, values []float32) error {
	length := 4 * h.Count
	if wire.Kind(h.Code) == wire.Pull {
		length = 0 // it has closed a clock
	}
	b := int(h.Offset / BlockElems)
	if o := r.checkRange(h, int(h.Count)); o.code != codeOK || h.Length != length || b >= r.progress.blocks {
		return fmt.Errorf("%w: update of [%d, +%d) after %d blocks", errStream, h.Offset, h.Count, r.progress.blocks)
	}
	switch kind := wire.Kind(h.Code); {
	case kind == wire.Assign:
		r.applyAssign(h, values)
	case kind == wire.Push && r.blocks[b].ready:
		r.apply(h, values)
	case kind == wire.Pull && r.blocks[b].ready:
		r.closeClock(b, h.Clock)
	default:
		return fmt.Errorf("%w: forwarded frame of kind %d", errStream, h.Code)
	}
	return nil
}

func (r *replica) receiveSeal(h *wire.Header, payload []byte) (bool, error) {
	p := &r.progress
	if p.blocks != len(r.blocks) || len(p.seal)+int(h.Length) > maxSealBytes {
		return false, fmt.Errorf("%w: seal after %d of %d blocks", errStream, p.blocks, len(r.blocks))
	}
	p.seal = append(p.seal, payload...)
	if h.Code != 1 {
		return false, nil
	}
	if len(p.seal) < 8 {
		return false, fmt.Errorf("%w: seal of %d bytes, at least 8", errStream, len(p.seal))
	}
	windows, err := shard.DecodeWindows(p.seal[8:])
	if err != nil {
		return false, err
	}
	next, err := r.copy.Fill(r.copy.Attempt, true)
	if err != nil {
		return false, err
	}
	r.windows, r.applied = windows, binary.LittleEndian.Uint64(p.seal)
	p.seal = nil
	r.become(next)
	return true, nil
}

// encode and decodeBlock are the 24 bytes of a block's metadata.
func (m block) encode(dst []byte) {
	binary.LittleEndian.PutUint64(dst, m.steps)
	binary.LittleEndian.PutUint32(dst[8:], m.clock)
	binary.LittleEndian.PutUint32(dst[12:], m.dirty)
	ready := uint64(0)
	if m.ready {
		ready = 1
	}
	binary.LittleEndian.PutUint64(dst[16:], ready)
}

func decodeBlock(src []byte) block {
	return block{
		steps: binary.LittleEndian.Uint64(src),
		clock: binary.LittleEndian.Uint32(src[8:]),
		dirty: binary.LittleEndian.Uint32(src[12:]),
		ready: binary.LittleEndian.Uint64(src[16:]) == 1,
	}
}
