package acceltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/accelerator"
)

// Exchange returns an exchange for each rank of a group in this process.
func Exchange(n int) []accelerator.Exchange {
	ready := make(chan struct{})
	var id []byte
	list := make([]accelerator.Exchange, n)
	list[0] = func(_ context.Context, own []byte) ([]byte, error) {
		id = append([]byte(nil), own...)
		close(ready)
		return own, nil
	}
	for r := 1; r < n; r++ {
		list[r] = func(ctx context.Context, _ []byte) ([]byte, error) {
			select {
			case <-ready:
				return id, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	return list
}

// World is the ranks of a group in this process, each on a device of its own.
type World struct {
	T       *testing.T
	Devices []*accelerator.Device
	Groups  []*accelerator.Group
}

// Join makes a group of n ranks on the first devices. All is closed at the end of the test.
func Join(t *testing.T, l *accelerator.Library, n int, change func(*accelerator.GroupConfig)) *World {
	t.Helper()
	w := &World{T: t, Groups: make([]*accelerator.Group, n)}
	for r := range n {
		d, err := l.Device(t.Context(), r)
		require.NoError(t, err)
		w.Devices = append(w.Devices, d)
	}
	w.Groups = w.JoinAgain(change)
	return w
}

// JoinAgain makes another group on the same devices.
func (w *World) JoinAgain(change func(*accelerator.GroupConfig)) []*accelerator.Group {
	w.T.Helper()
	groups := make([]*accelerator.Group, len(w.Devices))
	exchange := Exchange(len(w.Devices))
	w.Each(func(ctx context.Context, r int) error {
		c := accelerator.GroupConfig{Rank: r, Size: len(w.Devices), Exchange: exchange[r], Timeout: 20 * time.Second}
		if change != nil {
			change(&c)
		}
		var err error
		groups[r], err = w.Devices[r].Join(ctx, c)
		return err
	})
	for _, g := range groups {
		w.T.Cleanup(func() {
			if err := g.Abort(); !errors.Is(err, accelerator.ErrHung) { // the test knows
				require.NoError(w.T, err)
			}
		})
	}
	return groups
}

// Each runs a function for all ranks at the same time, which must not fail.
func (w *World) Each(f func(ctx context.Context, rank int) error) {
	w.T.Helper()
	for r, err := range w.Errors(f) {
		require.NoError(w.T, err, "rank %d", r)
	}
}

// Errors runs a function for all ranks at the same time.
func (w *World) Errors(f func(ctx context.Context, rank int) error) []error {
	w.T.Helper()
	errs := make([]error, len(w.Devices))
	ctx, cancel := context.WithTimeout(w.T.Context(), 30*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for r := range errs {
		all.Go(func() { errs[r] = f(ctx, r) })
	}
	all.Wait()
	return errs
}

// Put allocates a buffer on a rank's device and copies values into it.
func (w *World) Put(ctx context.Context, rank int, t accelerator.Type, values []float64) (accelerator.Buffer, error) {
	d := w.Devices[rank]
	m, err := d.Alloc(ctx, max(1, len(values))*t.Bytes())
	if err != nil {
		return accelerator.Buffer{}, err
	}
	s, err := d.NewStream(ctx)
	if err != nil {
		return accelerator.Buffer{}, err
	}
	b, err := m.Elements(t).Part(0, len(values))
	if err != nil {
		return b, err
	}
	if err := s.CopyIn(ctx, b, Encode(t, values)); err != nil {
		return b, err
	}
	return b, s.Close(ctx)
}

// Get copies the values of a buffer.
func (w *World) Get(ctx context.Context, rank int, b accelerator.Buffer) ([]float64, error) {
	s, err := w.Devices[rank].NewStream(ctx)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, b.Bytes())
	if err := s.CopyOut(ctx, raw, b); err != nil {
		return nil, err
	}
	return Decode(b.Type(), raw), s.Close(ctx)
}

// Want compares the values of a buffer with those wanted, which the type may round.
func (w *World) Want(ctx context.Context, rank int, b accelerator.Buffer, want []float64) error {
	got, err := w.Get(ctx, rank, b)
	if err != nil {
		return err
	}
	rounded := Decode(b.Type(), Encode(b.Type(), want))
	for i := range rounded {
		if !near(b.Type(), got[i], rounded[i]) {
			return fmt.Errorf("rank %d, %v, element %d of %d: %v, want %v", rank, b.Type(), i, len(rounded), got[i], rounded[i])
		}
	}
	return nil
}
