package checkpoint

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/elasticps/elasticps/internal/kernel"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// exportElems is how many elements are converted at once.
const exportElems = 1 << 20

// idsSuffix is behind the name of a sparse layer in that of the tensor of its ids.
const idsSuffix = "/ids"

// Export writes the weights of all layers, whole and in their shapes, as one safetensors file
// for serving: an object of that name in storage to. A sparse layer L of n rows is two tensors: "L/ids",
// int64 of shape [n], and "L", of shape [n, Dim], row by row in the order of ReadTable; ids
// are in front of all weights. dtype is Float32, or Float16 or BFloat16, to which weights are
// rounded (ties to even, over the largest to infinity). It holds some MiB at a time, or one
// block of a sparse layer, which is read twice. Errors about the checkpoint are those of
// ReadWeights.
func (c *Checkpoint) Export(ctx context.Context, to Storage, name string, dtype shard.DType) error {
	m := &c.chain[0].Manifest
	rows := make([]int, len(m.Model.Layers))
	for i, l := range m.Model.Layers {
		if !l.Sparse {
			continue
		}
		n, err := c.CountRows(ctx, l.Name)
		if err != nil {
			return err
		}
		rows[i] = int(n)
	}
	head, size, err := exportHeader(m, rows, dtype)
	if err != nil {
		return &Error{m.Name, "", "export", err}
	}
	return to.Put(ctx, name, int64(len(head))+size, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		for _, l := range m.Model.Layers {
			if !l.Sparse {
				continue
			}
			err := c.ReadTable(ctx, l.Name, func(ids []int64, _ []float32) error {
				_, err := w.Write(wire.Bytes(ids))
				return err
			})
			if err != nil {
				return err
			}
		}
		e := exporter{w: w, dtype: dtype}
		for _, l := range m.Model.Layers {
			if err := c.exportLayer(ctx, &e, l); err != nil {
				return err
			}
		}
		return nil
	})
}

// exportHeader returns the header of an exported file and the size of its tensors. rows are the
// numbers of rows of the sparse layers.
func exportHeader(m *Manifest, rows []int, dtype shard.DType) (head []byte, size int64, err error) {
	types := map[shard.DType]string{shard.Float32: "F32", shard.Float16: "F16", shard.BFloat16: "BF16"}
	if types[dtype] == "" {
		return nil, 0, fmt.Errorf("as %v, have %v, %v and %v", dtype, shard.Float32, shard.Float16, shard.BFloat16)
	}
	names := map[string]bool{"__metadata__": true}
	add := func(h *header, name, dtype string, size int64, shape ...int) error {
		if names[name] {
			return fmt.Errorf("name %q is not for tensors or there are two", name)
		}
		names[name] = true
		h.tensor(quote(name), dtype, size, shape...)
		return nil
	}
	head, err = encodeHeader(func(h *header) error {
		h.begin("format", "elasticps.model", "checkpoint", m.Name)
		for i, l := range m.Model.Layers {
			if !l.Sparse {
				continue
			}
			if err := add(h, l.Name+idsSuffix, "I64", 8, rows[i]); err != nil {
				return err
			}
		}
		for i, l := range m.Model.Layers {
			shape := slices.Clone(l.Shape)
			if l.Sparse {
				shape[0] = rows[i]
			}
			if err := add(h, l.Name, types[dtype], dtype.Size(), shape...); err != nil {
				return err
			}
		}
		size = h.data
		return h.end()
	})
	if err == nil && len(head)-sizeBytes > maxSafetensorsHeader {
		err = fmt.Errorf("header of %d bytes, limit %d", len(head)-sizeBytes, maxSafetensorsHeader)
	}
	return head, size, err
}

// exportLayer writes the weights of one layer.
func (c *Checkpoint) exportLayer(ctx context.Context, e *exporter, l shard.Layer) error {
	if l.Sparse {
		return c.ReadTable(ctx, l.Name, func(_ []int64, weights []float32) error { return e.write(weights) })
	}
	values := make([]float32, min(exportElems, l.Elems()))
	for at := int64(0); at < l.Elems(); at += int64(len(values)) {
		values = values[:min(int64(len(values)), l.Elems()-at)]
		if err := c.readWeights(ctx, &e.into, l.Name, at, values); err != nil {
			return err
		}
		if err := e.write(values); err != nil {
			return err
		}
	}
	return nil
}

// exporter writes values in one type.
type exporter struct {
	w     io.Writer
	dtype shard.DType
	into  room // of what is read
	room  room // of what is converted
}

func (e *exporter) write(values []float32) error {
	for part := range slices.Chunk(values, exportElems) {
		out := wire.Bytes(part)
		if e.dtype != shard.Float32 {
			out = e.room.of(e.dtype.Size() * int64(len(part)))
		}
		switch e.dtype {
		case shard.Float16:
			kernel.EncodeFP16Bytes(out, part)
		case shard.BFloat16:
			kernel.EncodeBF16Bytes(out, part)
		}
		if _, err := e.w.Write(out); err != nil {
			return err
		}
	}
	return nil
}
