package main

import (
	"fmt"
	"io"
	"math"
	"sync"
)

// window is what progressive validation has found out about some consecutive samples: each
// was predicted before it was trained on.
type window struct {
	Samples int      `json:"samples"`
	AUC     float64  `json:"auc"`
	BestAUC *float64 `json:"best_auc"` // of the planted model; null where there is none
}

// validation judges the predictions of all workers, by windows of samples.
type validation struct {
	size int
	out  io.Writer // gets a line for each full window

	mu      sync.Mutex
	open    []scored // predictions of the window that is filled
	best    []scored // those of the planted model
	windows []window
	samples int64
}

// add takes the predictions of a batch. A window has the samples in the order in which batches come, which is that of the log up to one batch of
// each other worker.
func (v *validation) add(batch []sample, scores []float32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range batch {
		v.samples++
		v.open = append(v.open, scored{scores[i], batch[i].click})
		if !math.IsNaN(batch[i].best) {
			v.best = append(v.best, scored{float32(batch[i].best), batch[i].click})
		}
		if len(v.open) == v.size {
			v.close()
		}
	}
}

// close ends a window.
func (v *validation) close() {
	w := window{Samples: len(v.open), AUC: auc(v.open)}
	if len(v.best) == len(v.open) {
		best := auc(v.best)
		w.BestAUC = &best
	}
	v.open, v.best = v.open[:0], v.best[:0]
	v.windows = append(v.windows, w)
	fmt.Fprintf(v.out, "samples %d to %d: %v\n", v.samples-int64(w.Samples), v.samples, w)
}

// String says how good the predictions were.
func (w window) String() string {
	if w.BestAUC == nil {
		return fmt.Sprintf("AUC %.4f", w.AUC)
	}
	return fmt.Sprintf("AUC %.4f of %.4f that are possible", w.AUC, *w.BestAUC)
}

// result returns the windows. The last one may be short; it counts alone if there is no
// other.
func (v *validation) result() (all []window, last window) {
	v.mu.Lock()
	defer v.mu.Unlock()
	full := len(v.windows)
	if len(v.open) > 0 {
		v.close()
	}
	return v.windows, v.windows[max(full, 1)-1]
}
