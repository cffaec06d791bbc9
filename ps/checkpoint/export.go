package checkpoint

import (
	"context"
	"fmt"
	"io"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// exportElems is how many elements are converted at once.
const exportElems = 1 << 20

// Export writes the weights of all layers, whole and in their shapes, as one safetensors file
// for serving: an object of that name in storage to. dtype is Float32, or Float16 or BFloat16,
// to which values are rounded (ties to even, over the largest to infinity). It holds some
// MiB at a time. Errors about the checkpoint are those of ReadWeights.
func (c *Checkpoint) Export(ctx context.Context, to Storage, name string, dtype shard.DType) error {
	types := map[shard.DType]string{shard.Float32: "F32", shard.Float16: "F16", shard.BFloat16: "BF16"}
	if types[dtype] == "" {
		return fmt.Errorf("checkpoint: export as %v, have %v, %v and %v", dtype, shard.Float32, shard.Float16, shard.BFloat16)
	}
	m := &c.chain[0].Manifest
	size := int64(0)
	head, err := encodeHeader(func(h *header) error {
		h.begin("format", "elasticps.model", "checkpoint", m.Name)
		for _, l := range m.Model.Layers {
			if l.Name == "__metadata__" {
				return fmt.Errorf("layer name %q is not for tensors", l.Name)
			}
			h.tensor(quote(l.Name), types[dtype], dtype.Size(), l.Shape...)
		}
		size = h.data
		return h.end()
	})
	if err == nil && len(head)-sizeBytes > maxSafetensorsHeader {
		err = fmt.Errorf("header of %d bytes, limit %d", len(head)-sizeBytes, maxSafetensorsHeader)
	}
	if err != nil {
		return &Error{m.Name, "", "export", err}
	}
	return to.Put(ctx, name, int64(len(head))+size, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		into := new(room)
		for _, l := range m.Model.Layers {
			if err := c.exportLayer(ctx, into, w, l, dtype); err != nil {
				return err
			}
		}
		return nil
	})
}

// exportLayer writes one layer.
func (c *Checkpoint) exportLayer(ctx context.Context, into *room, w io.Writer, l shard.Layer, dtype shard.DType) error {
	values := make([]float32, min(exportElems, l.Elems()))
	encoded := make([]byte, dtype.Size()*int64(len(values)))
	for at := int64(0); at < l.Elems(); at += int64(len(values)) {
		values = values[:min(int64(len(values)), l.Elems()-at)]
		if err := c.readWeights(ctx, into, l.Name, at, values); err != nil {
			return err
		}
		out := wire.Bytes(values)
		if dtype != shard.Float32 {
			out = encoded[:dtype.Size()*int64(len(values))]
		}
		switch dtype {
		case shard.Float16:
			kernel.EncodeFP16Bytes(out, values)
		case shard.BFloat16:
			kernel.EncodeBF16Bytes(out, values)
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
	}
	return nil
}
