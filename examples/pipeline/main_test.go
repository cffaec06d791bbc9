package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/examples/internal/mnist/mnisttest"
	"github.com/elasticps/elasticps/examples/internal/ranks"
	"github.com/elasticps/elasticps/internal/leak"
)

// TestMain is also the program of the other ranks.
func TestMain(m *testing.M) {
	if !ranks.First() {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestSmoke(t *testing.T) {
	data := mnisttest.Small(t, 960, 500)
	for name, shape := range map[string][]string{
		"2 stages, 2 replicas": {"-stages", "2", "-replicas", "2"},
		"4 stages":             {"-stages", "4", "-replicas", "1"},
		"3 replicas":           {"-stages", "1", "-replicas", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t, 20*time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			path := filepath.Join(t.TempDir(), "result.json")
			var out bytes.Buffer
			args := append(shape, "-data", data, "-images", "0", "-epochs", "2", "-batch", "48", "-min-accuracy", "0.5", "-json", path)
			require.NoError(t, run(ctx, args, &out, os.Stderr), "%v", &out)
			require.Contains(t, out.String(), "epoch 2/2  loss ")
			var r result
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &r))
			require.True(t, r.Equal)
			require.Equal(t, 40, r.Steps)
			require.Equal(t, 242762, r.Parameters)
			require.Len(t, r.InFlight, r.Stages)
			require.Greater(t, r.Accuracy, 0.5)
			require.Positive(t, r.ImagesPerSecond)
		})
	}
}

// The comparison notices parameters that differ by one bit.
func TestVerdict(t *testing.T) {
	o := options{stages: 2, replicas: 1, micros: 2, batch: 20, epochs: 1, learningRate: 0.1, seed: 1, minAccuracy: 0}
	dir, err := mnist.Find("")
	require.NoError(t, err)
	train, test, err := mnist.Load(dir)
	require.NoError(t, err)
	train, test = train.First(20), test.First(20)
	whole := newPart(0, len(sizes)-1, o.rows(), o.micros, o.seed)
	whole.feed, whole.scale = newFeed(train, o.rows(), o.micros), 1/float32(o.batch)
	require.NoError(t, o.eachStep(train, func(samples []int32, _ int) error {
		whole.feed.samples = samples
		for micro := range o.micros {
			_, err := whole.Forward(micro, nil)
			require.NoError(t, err)
			_, err = whole.Backward(micro, nil)
			require.NoError(t, err)
		}
		whole.step(float32(o.learningRate), 0)
		return nil
	}))
	first, end := o.layersOf(0)
	cut := len(newPart(first, end, 0, 0, 0).values)
	for _, equal := range []bool{true, false} {
		r := result{Steps: 1}
		if !equal {
			whole.values[cut] += 1e-6
		}
		require.NoError(t, compare(o, &r, [][]float32{whole.values[:cut], whole.values[cut:]}, train, test))
		require.Equal(t, equal, r.Equal)
		require.Equal(t, equal, r.verdict(o) == nil)
	}
}

// TestGradient compares the derivatives of a few weights of each layer with differences.
func TestGradient(t *testing.T) {
	dir, err := mnist.Find("")
	require.NoError(t, err)
	train, _, err := mnist.Load(dir)
	require.NoError(t, err)
	p := newPart(0, len(sizes)-1, 8, 1, 1)
	p.feed, p.scale = newFeed(train, 8, 1), 1.0/8
	p.feed.samples = []int32{0, 1, 2, 3, 4, 5, 6, 7}
	loss := func() float64 {
		p.loss = 0
		_, err := p.Forward(0, nil)
		require.NoError(t, err)
		_, err = p.Backward(0, nil)
		require.NoError(t, err)
		return p.loss
	}
	loss()
	grads := append([]float32(nil), p.grads...)
	at := 0
	for i, l := range p.layers {
		for _, k := range []int{at + len(l.weight)/2 + l.out/2, at + len(l.weight) + l.out/2} {
			const h = 1e-2
			before := p.values[k]
			p.values[k] = before + h
			up := loss()
			p.values[k] = before - h
			down := loss()
			p.values[k] = before
			require.InDelta(t, (up-down)/(2*h), grads[k], 2e-3+0.05*max(float64(grads[k]), -float64(grads[k])), "layer %d", i)
		}
		at += len(l.weight) + len(l.bias)
	}
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"-stages is 5, want 1 to 4":           {"-stages", "5"},
		"-replicas is 0, want 1 to 8":         {"-replicas", "0"},
		"-batch is 100, want a multiple of 2": {"-batch", "100", "-micro-batches", "8"},
		"-images is 10, want 0 or at least":   {"-images", "10"},
		"-momentum is 1, want 0 to below 1":   {"-momentum", "1"},
		"-min-accuracy is 95, want 0 to 1":    {"-min-accuracy", "95"},
		`"foo" is not a flag`:                 {"foo"},
		"were not found in /does/not/exist":   {"-data", "/does/not/exist"},
	} {
		var out bytes.Buffer
		require.ErrorContains(t, run(t.Context(), args, &out, &out), want)
	}
}
