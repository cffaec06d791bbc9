package table

import (
	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/shard"
)

// initial gives rows their first weights: a function of seed, table, id and element, the
// same wherever and whenever a row comes into being.
type initial struct {
	kind   shard.InitKind
	scale  float32
	seed   uint64
	stream uint64 // of the table
}

func newInitial(c Config) initial {
	scale := c.Init.Scale
	if c.Init.Kind == shard.Xavier {
		scale = c.Init.XavierLimit(c.Rows, int64(c.Dim))
	}
	return initial{c.Init.Kind, scale, c.Init.Seed, kernel.Stream(c.Name)}
}

// fill sets w to the first weights of a row.
func (in *initial) fill(w []float32, id int64) {
	stream := in.stream
	if in.kind != shard.Zeros {
		stream = kernel.RowStream(in.stream, id)
	}
	switch in.kind {
	case shard.Uniform, shard.Xavier:
		kernel.Uniform(w, in.seed, stream, 0, in.scale)
	case shard.Normal:
		kernel.Normal(w, in.seed, stream, 0, in.scale)
	case shard.TruncatedNormal:
		kernel.TruncatedNormal(w, in.seed, stream, 0, in.scale)
	default:
		clear(w)
	}
}
