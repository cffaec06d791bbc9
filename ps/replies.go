package ps

import (
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
)

// repliesBytes is the room for the headers and texts of replies that leave together.
const repliesBytes = 16 << 10

// maxReplyBuffers bounds the values of replies that leave together.
const maxReplyBuffers = batchBytes / wire.MaxPayload

// replies gathers the answers of a session that leave in one write.
type replies struct {
	heads  []byte // headers and texts, in a row; capacity repliesBytes, made at the first use
	begun  int    // what of heads is in no slice of out yet
	out    [stream.MaxSlices][]byte
	n      int       // slices in out
	values []*buffer // hold the payloads in out, at most maxReplyBuffers
	used   int       // elements of the last one
}

// full reports whether the replies have to be sent before one with n values.
func (r *replies) full(n int) bool {
	return len(r.heads)+wire.HeaderBytes+maxReplyText > repliesBytes || r.n+3 > len(r.out) ||
		(n > 0 && len(r.values) == maxReplyBuffers && r.used+n > BlockElems)
}

// room returns room for n values, until the replies are sent. They are an answer's from
// addValues on; before, the next call returns the same.
func (r *replies) room(n int, free buffers) []float32 {
	if len(r.values) == 0 || r.used+n > BlockElems {
		r.values = append(r.values, free.get())
		r.used = 0
	}
	return r.values[len(r.values)-1].values[r.used : r.used+n]
}

// add adds an answer without values.
func (r *replies) add(h *wire.Header, text []byte) {
	h.Length, h.PayloadSum = uint32(len(text)), wire.Sum(text)
	r.head(h)
	r.heads = append(r.heads, text...)
}

// addValues adds an answer with values, which travel as payload. Both lie in room.
func (r *replies) addValues(h *wire.Header, payload []byte) {
	h.Length, h.PayloadSum = uint32(len(payload)), wire.Sum(payload)
	r.head(h)
	r.cut()
	r.out[r.n] = payload
	r.n++
	r.used += (len(payload) + 3) / 4
}

// addBuffer adds an answer whose n bytes of values lie in a buffer of their own. The
// caller has seen that it is not full.
func (r *replies) addBuffer(h *wire.Header, b *buffer, n int) {
	r.values = append(r.values, b)
	r.used = 0
	r.addValues(h, b.bytes(n))
	r.used = BlockElems // nothing else goes in
}

func (r *replies) head(h *wire.Header) {
	if r.heads == nil {
		r.heads = make([]byte, 0, repliesBytes)
	}
	n := len(r.heads)
	r.heads = r.heads[:n+wire.HeaderBytes]
	h.Encode(r.heads[n:])
}

// cut makes a slice of what was added to heads since the last one.
func (r *replies) cut() {
	if r.begun < len(r.heads) {
		r.out[r.n] = r.heads[r.begun:]
		r.n++
		r.begun = len(r.heads)
	}
}

// send sends what there is and gives the buffers back to free.
func (r *replies) send(conn *stream.Conn, free buffers) error {
	r.cut()
	if r.n == 0 {
		return nil
	}
	err := conn.Send(r.out[:r.n]...)
	r.discard(free)
	return err
}

// discard forgets what there is.
func (r *replies) discard(free buffers) {
	for i, b := range r.values {
		free.put(b)
		r.values[i] = nil
	}
	clear(r.out[:r.n])
	r.heads, r.values, r.begun, r.n, r.used = r.heads[:0], r.values[:0], 0, 0, 0
}
