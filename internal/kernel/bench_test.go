package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// benchSizes are element counts: one that stays in the first-level cache, one that
// stays in the second, one chunk of the data plane (1 MiB), and one layer that comes
// from memory.
var benchSizes = []int{4 << 10, 64 << 10, 256 << 10, 16 << 20}

type benchmark struct {
	name string
	run  func(w, g, m, v []float32)
}

// versioned lists the kernels that have a wide version.
func versioned() []benchmark {
	p := NewAdam(lr, beta1, beta2, eps, 0, 1) // decay would drive the moments into denormals
	return []benchmark{
		{"Add", func(w, g, _, _ []float32) { Add(w, g) }},
		{"Axpy", func(w, g, _, _ []float32) { Axpy(w, 0.5, g) }},
		{"Scale", func(w, _, _, _ []float32) { Scale(w, 1) }}, // another factor leads to zero
		{"Dot", func(w, g, _, _ []float32) { Dot(w, g) }},
		{"MaxAbs", func(_, g, _, _ []float32) { MaxAbs(g) }},
		{"AllFinite", func(_, g, _, _ []float32) { AllFinite(g) }},
		{"SGD", func(w, g, _, _ []float32) { SGD(w, g, lr, 0) }},
		{"SGDDecay", func(w, g, _, _ []float32) { SGD(w, g, lr, 0.01) }},
		{"Momentum", func(w, g, v, _ []float32) { Momentum(w, g, v, lr, mu, 0) }},
		{"Nesterov", func(w, g, v, _ []float32) { Nesterov(w, g, v, lr, mu, 0) }},
		{"Adagrad", func(w, g, h, _ []float32) { Adagrad(w, g, h, lr, eps, 0) }},
		{"Adam", func(w, g, m, v []float32) { Adam(w, g, m, v, p) }},
		{"AdamW", func(w, g, m, v []float32) { AdamW(w, g, m, v, p) }},
		{"AMSGrad", func(w, g, m, v []float32) { AMSGrad(w, g, m, v, v, p) }},
		{"FTRL", func(w, g, z, n []float32) { FTRL(w, g, z, n, lr, 1, l1, 0) }},
	}
}

// BenchmarkKernel reports the bytes of gradient per second; a step also reads and
// writes weights and slots. Versions of a kernel run one after the other, so that
// their ratio is one of the same minute.
func BenchmarkKernel(b *testing.B) {
	for _, k := range versioned() {
		for _, size := range benchSizes {
			for _, path := range withoutWidest() {
				b.Run(fmt.Sprintf("%s/%dKiB/%s", k.name, size*4>>10, path), func(b *testing.B) {
					use(b, path)
					k.measure(b, size, 1)
				})
			}
		}
	}
	for _, k := range []benchmark{
		{"Copy", func(w, g, _, _ []float32) { copy(w, g) }},
		{"Uniform", func(_, g, _, _ []float32) { Uniform(g, 1, 2, 0, 1) }},
		{"Normal", func(_, g, _, _ []float32) { Normal(g, 1, 2, 0, 1) }},
	} {
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%dKiB", k.name, size*4>>10), func(b *testing.B) { k.measure(b, size, 1) })
		}
	}
}

// BenchmarkRow reports rows per second of the steps of an embedding table, in cache.
func BenchmarkRow(b *testing.B) {
	p := NewAdam(lr, beta1, beta2, eps, 0, 1)
	steps := []benchmark{
		{"SGD", func(w, g, _, _ []float32) { SGD(w, g, lr, 0) }},
		{"Adagrad", func(w, g, h, _ []float32) { Adagrad(w, g, h, lr, eps, 0) }},
		{"AdagradRow", func(w, g, h, _ []float32) { AdagradRow(w, g, h, lr, eps, 0) }},
		{"Adam", func(w, g, m, v []float32) { Adam(w, g, m, v, p) }},
		{"AMSGrad", func(w, g, m, v []float32) { AMSGrad(w, g, m, v, v, p) }},
		{"FTRL", func(w, g, z, n []float32) { FTRL(w, g, z, n, lr, 1, l1, 0) }},
	}
	for _, k := range steps {
		for _, dim := range []int{16, 64} {
			for _, path := range withoutWidest() {
				b.Run(fmt.Sprintf("%s/dim%d/%s", k.name, dim, path), func(b *testing.B) {
					use(b, path)
					k.measure(b, dim, 1)
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
				})
			}
		}
	}
}

// withoutWidest are the paths that differ for kernels without an AVX-512 version.
func withoutWidest() []string {
	return slices.DeleteFunc(paths(), func(path string) bool { return path == "avx512" })
}

// BenchmarkDenormals runs the kernels on weights and gradients below the normal
// numbers, where many processors take tens of cycles more.
func BenchmarkDenormals(b *testing.B) {
	for _, k := range versioned() {
		for _, path := range withoutWidest() {
			b.Run(fmt.Sprintf("%s/%s", k.name, path), func(b *testing.B) {
				use(b, path)
				k.measure(b, 64<<10, math.SmallestNonzeroFloat32*(1<<20))
			})
		}
	}
}

func (k benchmark) measure(b *testing.B, size int, scale float32) {
	w, g, m, v := make([]float32, size), make([]float32, size), make([]float32, size), make([]float32, size)
	Uniform(w, 1, 1, 0, scale)
	Uniform(g, 1, 2, 0, scale)
	Fill(m, 0) // the pages exist before the clock runs
	Fill(v, 0)
	b.SetBytes(int64(size) * 4)
	for b.Loop() {
		k.run(w, g, m, v)
	}
}
