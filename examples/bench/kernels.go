package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/internal/kernel"
)

const (
	// optimizerBytes is the size of the weights that the optimizers step over.
	optimizerBytes = 64 * mib
	// cachedBytes is the size of weights that stay in the second-level cache of most
	// processors together with gradient and slots.
	cachedBytes = 128 * kib
	// codecBytes is the size of what is converted at once: a chunk of the data plane.
	codecBytes = mib
)

// optimizerKernel is a fused step and how many arrays it reads and writes.
type optimizerKernel struct {
	name   string
	arrays int64
	step   func(w, g, m, v []float32)
}

func optimizerKernels() []optimizerKernel {
	return []optimizerKernel{
		{"sgd", 3, func(w, g, _, _ []float32) { kernel.SGD(w, g, learningRate, 0) }},
		{"momentum", 5, func(w, g, m, _ []float32) { kernel.Momentum(w, g, m, learningRate, 0.9, 0) }},
		{"adagrad", 5, func(w, g, h, _ []float32) { kernel.Adagrad(w, g, h, learningRate, 1e-10, 0) }},
		{"adam", 7, adamStep()},
	}
}

func adamStep() func(w, g, m, v []float32) {
	p := kernel.NewAdam(learningRate, 0.9, 0.999, 1e-8, 0, 1000)
	return func(w, g, m, v []float32) { kernel.Adam(w, g, m, v, p) }
}

// stepOver returns a loop body that steps over arrays of weights, gradient, and slots.
func (k optimizerKernel) stepOver(a [4][]float32) func() {
	return func() { k.step(a[0], a[1], a[2], a[3]) }
}

// stagger keeps arrays from beginning at the same offset of a large power of two: they
// would compete for the same sets of caches and translation buffers, which halves the
// speed of a step over four of them on some machines, and not on every run.
const stagger = mib + 4*kib

// fourArrays are weights, gradient and two slots of so many bytes each.
func fourArrays(bytes int64) [4][]float32 {
	var arrays [4][]float32
	stride := (bytes + stagger) / 4
	all := gradient(4 * 4 * stride)
	for i := range arrays {
		arrays[i] = all[int64(i)*stride:][:bytes/4]
	}
	return arrays
}

func optimizerNames() []string {
	var names []string
	for _, k := range optimizerKernels() {
		names = append(names, "optimizer."+k.name)
	}
	return names
}

// measureOptimizers measures steps that come from memory and go there, bytes read and
// written, against copies within the same arrays: which memory an array has got makes a
// difference of two on some machines.
func (b *bench) measureOptimizers(ctx context.Context) error {
	b.retire()
	arrays := fourArrays(optimizerBytes)
	for _, k := range optimizerKernels() {
		if !b.selected("optimizer." + k.name) {
			continue
		}
		others := slices.Delete(slices.Clone(arrays[:(k.arrays+1)/2]), 1, 2)
		copying := plainCopy(arrays[1], others...) // from the gradient, which nothing changes
		bandwidth := func(ctx context.Context, d time.Duration) ([]float64, error) {
			copied, err := copying(ctx, d)
			for i := range copied {
				copied[i] *= 2 // read and written
			}
			return copied, err
		}
		p, err := b.alternate(ctx, bandwidth, perSecond(k.arrays*optimizerBytes, 1, k.stepOver(arrays)))
		if err != nil {
			return err
		}
		r := compared("optimizer."+k.name, optimizerBytes, "GB/s", 1e-9, p.product[0], p.limit[0])
		r.Note = "read and written; limit: copy"
		if err := b.out.add(r); err != nil {
			return err
		}
	}
	return nil
}

// measureAdamInCache measures a step of Adam on data in the cache, bytes of gradient,
// against the pure-Go twin, which runs in another process: how kernels run is decided
// when a process starts.
func (b *bench) measureAdamInCache(ctx context.Context) (err error) {
	b.retire()
	t, err := startTwin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	p, err := b.alternate(ctx, t.probe, adamInCache())
	if err != nil {
		return err
	}
	r := compared("optimizer.adam.cache", cachedBytes, "GB/s", 1e-9, p.product[0], p.limit[0])
	r.Note = "of gradient; limit: the pure-Go twin"
	return b.out.add(r)
}

func adamInCache() probe {
	return perSecond(cachedBytes, 8, optimizerKernel{step: adamStep()}.stepOver(fourArrays(cachedBytes)))
}

// conversion is one of float32 to fewer bits and back.
type conversion struct {
	name           string
	encode, decode func(narrow []byte, wide []float32)
}

func conversions() []conversion {
	all := []conversion{
		{"fp16", kernel.EncodeFP16Bytes, func(narrow []byte, wide []float32) { kernel.DecodeFP16Bytes(wide, narrow) }},
		{"bf16", kernel.EncodeBF16Bytes, func(narrow []byte, wide []float32) { kernel.DecodeBF16Bytes(wide, narrow) }},
	}
	for _, f := range []codec.Format{codec.E4M3, codec.E5M2, codec.MXE4M3} {
		all = append(all, conversion{
			f.String(),
			func(narrow []byte, wide []float32) { _ = f.Encode(narrow[:f.EncodedLen(len(wide))], wide) }, // lengths are right
			func(narrow []byte, wide []float32) { _ = f.Decode(wide, narrow[:f.EncodedLen(len(wide))]) },
		})
	}
	return all
}

func codecNames() []string {
	var names []string
	for _, c := range conversions() {
		names = append(names, "codec."+c.name+".encode", "codec."+c.name+".decode")
	}
	return names
}

// measureCodecs measures conversions of one chunk, bytes of float32, against a copy of
// the float32.
func (b *bench) measureCodecs(ctx context.Context) error {
	b.retire()
	wide, other, narrow := gradient(codecBytes), gradient(codecBytes), make([]byte, codecBytes/2)
	for _, c := range conversions() {
		c.encode(narrow, wide)
		for _, direction := range []struct {
			name string
			run  func(narrow []byte, wide []float32)
		}{{"encode", c.encode}, {"decode", c.decode}} {
			p, err := b.alternate(ctx, plainCopy(other, wide), perSecond(codecBytes, 1, func() { direction.run(narrow, wide) }))
			if err != nil {
				return err
			}
			r := compared("codec."+c.name+"."+direction.name, codecBytes, "GB/s", 1e-9, p.product[0], p.limit[0])
			r.Note = "of float32; limit: copy"
			if err := b.out.add(r); err != nil {
				return err
			}
		}
	}
	return nil
}
