package ps

import (
	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// encodable reports whether values may travel as t, in a push or in the answer to a pull.
func encodable(t shard.DType, read bool) bool {
	return t == shard.Float32 || t == shard.Float16 || t == shard.BFloat16 || t == shard.Float8E4M3 && !read
}

// travelType is the type in which values of a layer travel.
func travelType(l *shard.Layer, kind wire.Kind) shard.DType {
	switch {
	case kind == wire.Assign, kind == wire.DeleteRows: // first values are exact; no values
		return shard.Float32
	case l.Wire == shard.Float8E4M3 && reads(kind):
		return shard.BFloat16
	}
	return l.Wire
}

// encodedLen is how many bytes n values take.
func encodedLen(n int, t shard.DType) int {
	if t == shard.Float8E4M3 {
		return codec.E4M3.EncodedLen(n)
	}
	return int(t.Size()) * n
}

// encode returns x as it travels. Other types than float32 are written to dst, which
// has room; float32 values travel from where they are.
func encode(dst []byte, x []float32, t shard.DType) []byte {
	if t == shard.Float32 {
		return wire.Bytes(x)
	}
	dst = dst[:encodedLen(len(x), t)]
	switch t {
	case shard.Float16:
		kernel.EncodeFP16Bytes(dst, x)
	case shard.BFloat16:
		kernel.EncodeBF16Bytes(dst, x)
	case shard.Float8E4M3:
		_ = codec.E4M3.Encode(dst, x) // the length is right
	}
	return dst
}

// decode fills x with what arrived as type t, not float32, in as many bytes as that takes. It
// reports false when it is not what encode writes.
func decode(x []float32, src []byte, t shard.DType) bool {
	switch t {
	case shard.Float16:
		kernel.DecodeFP16Bytes(x, src)
	case shard.BFloat16:
		kernel.DecodeBF16Bytes(x, src)
	default:
		return codec.E4M3.Decode(x, src) == nil
	}
	return true
}

// round sets dst to x as it arrives when it travels as type t, not float32. The two may
// be the same.
func round(dst, x []float32, t shard.DType) {
	var room [512]byte
	const most = len(room) / 2 / codec.Block * codec.Block // pieces are encoded as the whole is
	for len(x) > 0 {
		n := min(len(x), most)
		decode(dst[:n], encode(room[:], x[:n], t), t)
		dst, x = dst[n:], x[n:]
	}
}
