package ps

import (
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// encodable reports whether values may travel as t.
func encodable(t shard.DType) bool {
	return t == shard.Float32 || t == shard.Float16 || t == shard.BFloat16
}

// encode returns x as it travels. Other types than float32 are written to dst, which
// has room; float32 values travel from where they are.
func encode(dst []byte, x []float32, t shard.DType) []byte {
	switch t {
	case shard.Float16:
		dst = dst[:2*len(x)]
		kernel.EncodeFP16Bytes(dst, x)
	case shard.BFloat16:
		dst = dst[:2*len(x)]
		kernel.EncodeBF16Bytes(dst, x)
	default:
		return wire.Bytes(x)
	}
	return dst
}

// decode fills x with what arrived as type t, not float32.
func decode(x []float32, src []byte, t shard.DType) {
	if t == shard.Float16 {
		kernel.DecodeFP16Bytes(x, src)
	} else {
		kernel.DecodeBF16Bytes(x, src)
	}
}

// round sets dst to x as it arrives when it travels as type t, not float32. The two may
// be the same.
func round(dst, x []float32, t shard.DType) {
	var room [512]byte
	for len(x) > 0 {
		n := min(len(x), len(room)/2)
		decode(dst[:n], encode(room[:], x[:n], t), t)
		dst, x = dst[n:], x[n:]
	}
}
