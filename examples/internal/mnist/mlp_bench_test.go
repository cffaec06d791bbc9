package mnist

import "testing"

func BenchmarkGradient(b *testing.B) {
	train, _ := realSets(b)
	mlp, err := NewMLP(Config{Mean: train.Mean()})
	if err != nil {
		b.Fatal(err)
	}
	params := mlp.Init(1)
	sampler := newSampler(b, train.Len(), 1, Phase{Epochs: 1, BatchSize: 128})
	step, samples := 0, 0
	for b.Loop() {
		batch := Batch{Set: train, Samples: sampler.Batch(step % sampler.NumSteps())}
		if _, _, err := mlp.Gradient(params, batch); err != nil {
			b.Fatal(err)
		}
		step++
		samples += len(batch.Samples)
	}
	b.ReportMetric(float64(samples)/b.Elapsed().Seconds(), "samples/s")
}

func realSets(tb testing.TB) (train, test *Set) {
	tb.Helper()
	dir, err := Find("")
	if err != nil {
		tb.Fatal(err)
	}
	if train, test, err = Load(dir); err != nil {
		tb.Fatal(err)
	}
	return train, test
}
