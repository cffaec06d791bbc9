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
	rows     int    // of a table: rows of the block under way, still to come
	// of a table: what is known of ids of this block that are not admitted, and how much it will be
	waiting      []byte
	waitingBytes int
	state        []byte
	stated       bool // the state has come: changes count
}

// incoming is a stream that fills a copy of this server.
type incoming struct {
	r       *replica
	attempt uint64
	behind  bool // has changes that were not confirmed yet
}

// accept begins a stream to this copy, after the coordinator has prepared it, or, with
// Code 1, goes on with a copy whose state is that of the new owner.
func (r *replica) accept(ses *session, h *wire.Header, from shard.ServerID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.Code == 0 {
		if r.copy.State != shard.Receiving || r.copy.Attempt != h.Seq || r.progress.frames != 0 {
			return fmt.Errorf("%w: the copy of shard %d is %v at attempt %d", shard.ErrRefused, h.Shard, r.copy.State, r.copy.Attempt)
		}
		r.source = ses
		return nil
	}
	if r.changes != h.Request || uint64(r.last) != h.Incarnation {
		return fmt.Errorf("%w: the copy of shard %d has %d changes, the last at epoch %d, not %d at epoch %d",
			shard.ErrRefused, h.Shard, r.changes, r.last, h.Request, h.Incarnation)
	}
	next, err := r.copy.Refollow(from, shard.Epoch(h.Epoch), h.Seq)
	if err != nil {
		return err
	}
	r.become(next)
	r.source, r.progress = ses, receiveProgress{blocks: len(r.blocks), stated: true}
	return nil
}

// follows is isOpen for a caller who does not hold the replica's mu.
func (in *incoming) follows(ses *session) bool {
	in.r.mu.Lock()
	defer in.r.mu.Unlock()
	return in.isOpen(ses)
}

// isOpen reports whether the copy still takes what comes on a session. The caller holds the
// replica's mu.
func (in *incoming) isOpen(ses *session) bool {
	_, err := in.r.copy.Fill(in.attempt)
	return err == nil && in.r.source == ses
}

// receive takes one frame of a follower stream, and keeps nothing of its payload.
func (in *incoming) receive(ses *session, h *wire.Header, payload []byte) error {
	r := in.r
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.progress
	if !in.isOpen(ses) {
		return fmt.Errorf("%w: shard %d: the copy is %v at attempt %d, the stream of attempt %d", shard.ErrRefused, h.Shard, r.copy.State, r.copy.Attempt, in.attempt)
	}
	if h.Request != p.frames+1 {
		return fmt.Errorf("%w: frame %d of shard %d, expected %d", errStream, h.Request, h.Shard, p.frames+1)
	}
	p.frames++
	in.behind = in.behind || p.stated
	switch {
	case h.Kind == wire.BlockMeta && r.sparse:
		return r.receiveTableMeta(h, payload)
	case h.Kind == wire.BlockMeta:
		return r.receiveMeta(h, payload)
	case h.Kind == wire.Block && r.sparse:
		return r.receiveTableSection(h, payload)
	case h.Kind == wire.Block:
		return r.receiveSection(h, ses.floats(payload))
	case h.Kind == wire.Forward:
		return r.receiveForward(ses, h, payload)
	case h.Kind == wire.State:
		err := r.receiveState(h, payload)
		in.behind = p.stated
		return err
	}
	return fmt.Errorf("%w: frame of kind %d", errStream, h.Kind)
}

func (r *replica) receiveMeta(h *wire.Header, payload []byte) error {
	p := &r.progress
	if p.sections != 0 || p.stated || p.blocks >= len(r.blocks) || h.Offset != uint64(p.blocks)*BlockElems || h.Length != blockMetaBytes {
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

func (r *replica) receiveForward(ses *session, h *wire.Header, payload []byte) error {
	change := *h
	change.Kind = wire.Kind(h.Code)
	if change.Kind == wire.Retain {
		return r.receiveRetain(h, payload)
	}
	ids, payload, ok := ses.split(&change, payload)
	if !ok || !r.fitsForward(&change, ids, len(payload)) {
		return fmt.Errorf("%w: forwarded frame of kind %d with [%d, +%d) after %d blocks", errStream, h.Code, h.Offset, h.Count, r.progress.blocks)
	}
	if r.progress.stated && writes(change.Kind) { // before, the windows are on their way with the state
		if v := r.windows.Admit(h.Incarnation, h.Seq, h.Floor); v != shard.Fresh {
			return fmt.Errorf("%w: push %d of incarnation %d is %v here", errStream, h.Seq, h.Incarnation, v)
		}
	}
	r.change(&change, ids, ses.floats(payload))
	return nil
}

// fitsForward reports whether a change that the owner has made can be made here, with ids
// and bytes of values.
func (r *replica) fitsForward(h *wire.Header, ids []int64, bytes int) bool {
	b := int(h.Offset / BlockElems)
	if b >= r.progress.blocks {
		return false
	}
	switch h.Kind {
	case wire.PushRows:
		return r.sparse && int(h.Count) == len(ids)*r.layer.RowElems() && r.table.Holds(ids)
	case wire.DeleteRows:
		return r.sparse && h.Count == 0 && bytes == 0 && r.table.Holds(ids)
	case wire.PullRows, wire.Expire:
		return r.sparse && bytes == 0 && len(ids) == 0
	case wire.Assign:
		return r.checkRange(h, int(h.Count)).code == codeOK
	case wire.Push:
		return r.checkRange(h, int(h.Count)).code == codeOK && r.blocks[b].ready
	case wire.Pull: // it has closed a clock
		return r.checkRange(h, int(h.Count)).code == codeOK && r.blocks[b].ready && bytes == 0
	}
	return false
}

func (r *replica) receiveRetain(h *wire.Header, payload []byte) error {
	m, err := decodeRetain(payload)
	if err != nil || !r.progress.stated {
		return fmt.Errorf("%w: incarnations in %d bytes: %w", errStream, len(payload), err)
	}
	r.windows.Retain(m.Horizon, m.Live)
	r.changes++
	r.last = shard.Epoch(h.Epoch)
	return nil
}

// receiveState takes what belongs to the shard as a whole. With it the copy is one: it
// has everything up to a change, and counts the next ones itself.
func (r *replica) receiveState(h *wire.Header, payload []byte) error {
	p := &r.progress
	if p.blocks != len(r.blocks) || p.stated || len(p.state)+int(h.Length) > maxStateBytes {
		return fmt.Errorf("%w: state after %d of %d blocks", errStream, p.blocks, len(r.blocks))
	}
	p.state = append(p.state, payload...)
	if h.Code != 1 {
		return nil
	}
	if len(p.state) < stateHeaderBytes {
		return fmt.Errorf("%w: state of %d bytes, at least %d", errStream, len(p.state), stateHeaderBytes)
	}
	windows, err := shard.DecodeWindows(p.state[stateHeaderBytes:])
	if err != nil {
		return err
	}
	next, err := r.copy.Fill(r.copy.Attempt)
	if err != nil {
		return err
	}
	r.windows, r.applied = windows, binary.LittleEndian.Uint64(p.state)
	r.changes, r.last = binary.LittleEndian.Uint64(p.state[8:]), shard.Epoch(binary.LittleEndian.Uint64(p.state[16:]))
	for b := range r.blocks {
		r.blocks[b].seen = r.changes // at the latest
	}
	p.state, p.stated = nil, true
	r.become(next)
	return nil
}

// encode writes the message to dst and returns how long it is: horizon and incarnations,
// 8 bytes each.
func (m retain) encode(dst []byte) int {
	binary.LittleEndian.PutUint64(dst, m.Horizon)
	for i, inc := range m.Live {
		binary.LittleEndian.PutUint64(dst[8+8*i:], inc)
	}
	return 8 + 8*len(m.Live)
}

func decodeRetain(src []byte) (retain, error) {
	if len(src) < 8 || len(src)%8 != 0 {
		return retain{}, errStream
	}
	m := retain{Horizon: binary.LittleEndian.Uint64(src)}
	for rest := src[8:]; len(rest) > 0; rest = rest[8:] {
		m.Live = append(m.Live, binary.LittleEndian.Uint64(rest))
	}
	return m, nil
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
