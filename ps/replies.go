package ps

import (
	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
)

// repliesBytes is the room for the headers and texts of replies that leave together.
const repliesBytes = 16 << 10

// replies gathers the answers of a session that leave in one write.
type replies struct {
	heads  []byte // headers and texts, in a row; capacity repliesBytes, made at the first use
	begun  int    // what of heads is in no slice of out yet
	out    [stream.MaxSlices][]byte
	n      int       // slices in out
	values []*buffer // payloads in out
	bytes  int       // and their size
}

// full reports whether the replies have to be sent before one with n bytes of values.
func (r *replies) full(n int) bool {
	return len(r.heads)+wire.HeaderBytes+maxReplyText > repliesBytes || r.n+3 > len(r.out) ||
		(n > 0 && r.bytes > 0 && r.bytes+n > batchBytes)
}

// add adds an answer without values.
func (r *replies) add(h *wire.Header, text []byte) {
	h.Length, h.PayloadSum = uint32(len(text)), wire.Sum(text)
	r.head(h)
	r.heads = append(r.heads, text...)
}

// addValues adds an answer with values. The payload lies in b, which belongs to the
// replies until they are sent.
func (r *replies) addValues(h *wire.Header, b *buffer, payload []byte) {
	h.Length, h.PayloadSum = uint32(len(payload)), wire.Sum(payload)
	r.head(h)
	r.cut()
	r.out[r.n] = payload
	r.n++
	r.values = append(r.values, b)
	r.bytes += len(payload)
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
	r.heads, r.values, r.begun, r.n, r.bytes = r.heads[:0], r.values[:0], 0, 0, 0
}
