package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
)

// sizeBytes is the length in front of the header of a safetensors file.
const sizeBytes = 8

// maxSafetensorsHeader is the longest header that readers of safetensors take.
const maxSafetensorsHeader = 100_000_000

// header writes the header of a safetensors file piece by piece: one JSON object with the
// metadata, then an entry per tensor in the order of the data. Equal tensors give equal
// bytes.
type header struct {
	emit   func([]byte) error
	err    error
	length int   // bytes emitted
	data   int64 // bytes of tensors so far
	room   []byte
}

func (h *header) put(b []byte) {
	if h.err == nil {
		h.length += len(b)
		h.err = h.emit(b)
	}
}

// begin writes the metadata, pairs of a name and a value.
func (h *header) begin(metadata ...string) {
	b := []byte(`{"__metadata__":{`)
	for i := 0; i < len(metadata); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, quote(metadata[i])...), ':')
		b = append(b, quote(metadata[i+1])...)
	}
	h.put(append(b, '}'))
}

// tensor adds a tensor whose elements have size bytes each. The name is quoted already.
func (h *header) tensor(name []byte, dtype string, size int64, shape ...int) {
	b := append(h.room[:0], ',')
	b = append(append(b, name...), `:{"dtype":"`...)
	b = append(append(b, dtype...), `","shape":[`...)
	for i, d := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(d), 10)
		size *= int64(d)
	}
	b = strconv.AppendInt(append(b, `],"data_offsets":[`...), h.data, 10)
	h.data += size
	b = append(strconv.AppendInt(append(b, ','), h.data, 10), "]}"...)
	h.room = b
	h.put(b)
}

// end closes the object and pads it with spaces so that the tensors begin at a multiple of
// 8 bytes.
func (h *header) end() error {
	h.put([]byte{'}'})
	h.put([]byte("       ")[:-h.length&7])
	return h.err
}

// encodeHeader returns the length and the header that fill writes.
func encodeHeader(fill func(*header) error) ([]byte, error) {
	out := make([]byte, sizeBytes, 4096)
	h := header{emit: func(b []byte) error {
		out = append(out, b...)
		return nil
	}}
	if err := fill(&h); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint64(out, uint64(len(out)-sizeBytes))
	return out, nil
}

// quote returns s, which is UTF-8, as JSON.
func quote(s string) []byte {
	q, _ := json.Marshal(s) // strings cannot fail
	return q
}
