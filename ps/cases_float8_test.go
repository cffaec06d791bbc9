package ps_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/codec"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// asFloat8 is a gradient as it arrives: each request is encoded by itself.
func asFloat8(t testing.TB, grad []float32) []float32 {
	out := make([]float32, len(grad))
	for i := 0; i < len(grad); i += ps.BlockElems {
		part := grad[i:min(i+ps.BlockElems, len(grad))]
		packed := make([]byte, codec.E4M3.EncodedLen(len(part)))
		require.NoError(t, codec.E4M3.Encode(packed, part))
		require.NoError(t, codec.E4M3.Decode(out[i:i+len(part)], packed))
	}
	return out
}

// corrected is a worker with feedback.
func (c *cluster) corrected(name string) *ps.Worker {
	w, err := ps.StartWorker(c.ctx, ps.ClientConfig{
		Node: c.nodeFor(name), Name: name, Coordinator: c.ref(), Logger: c.log, Feedback: &codec.Feedback{},
	})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = w.Close() })
	return w
}

// A push as one byte an element takes at most 0.26 of the bytes.
func TestFloat8QuarterOfTheBytes(t *testing.T) {
	settled(t)
	const n = 4 * ps.BlockElems
	c := newCluster(t, sgdJob(layer("float32", n), wired("float8", shard.Float8E4M3, n)), patient)
	m := &meter{}
	p := newFrameProxy(t, nil)
	p.spoil = m.pass
	c.proxied("s1", p)
	w := c.worker("w")
	bytes := map[string]int64{}
	for round := range 4 { // the first one connects; what comes late on a busy machine is sent twice
		for _, name := range []string{"float32", "float8"} {
			before := m.bytes.Load()
			require.NoError(t, w.Push(c.ctx, name, vector(n, -1)))
			if took := m.bytes.Load() - before; round < 2 || took < bytes[name] {
				bytes[name] = took
			}
		}
	}
	t.Logf("%.4f", float64(bytes["float8"])/float64(bytes["float32"]))
	require.GreaterOrEqual(t, bytes["float8"], int64(codec.E4M3.EncodedLen(n)))
	require.LessOrEqual(t, float64(bytes["float8"]), 0.26*float64(bytes["float32"]))
	got := make([]float32, n)
	require.NoError(t, w.Pull(c.ctx, "float8", got))
	sameBits(t, vector(n, 4), got, "float8")
}

// The result is that of float32 arithmetic on gradients that were rounded once, with feedback
// on those that have what was lost added; the parameters come as bfloat16; all of it is the
// same on the same node and behind either socket.
func TestFloat8Everywhere(t *testing.T) {
	for _, network := range []string{"local", "unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			settled(t)
			var options []option
			if network == "local" {
				options = []option{oneNode}
			}
			job := layersJob(0, 0, 0)
			for _, n := range oddSizes {
				job.Model.Layers = append(job.Model.Layers, wired(fmt.Sprint(n), shard.Float8E4M3, n), layer(fmt.Sprint("float32 ", n), n))
			}
			c := newCluster(t, job, options...)
			c.serverOver("s1", network)
			plain, with := c.worker("plain"), c.corrected("with")
			parallel(t, len(oddSizes), func(i int) error {
				n := oddSizes[i]
				want, got := make([]float32, n), make([]float32, n)
				if err := plain.Pull(c.ctx, fmt.Sprint("float32 ", n), got); err != nil { // frames lie at odd places
					return err
				}
				for round := range 3 {
					grad := anyFloats(n, uint64(100*i+round))
					for j, g := range asFloat8(t, grad) {
						want[j] -= g
					}
					if err := plain.PushPull(c.ctx, fmt.Sprint(n), grad, got); err != nil {
						return err
					}
				}
				if err := differs(fmt.Sprint(n), rounded(shard.BFloat16, want), got); err != nil {
					return err
				}
				return pushCorrected(t, c, with, n)
			})
		})
	}
}

// pushCorrected pushes one gradient several times and compares with the definition.
func pushCorrected(t *testing.T, c *cluster, w *ps.Worker, n int) error {
	before, after, rest := make([]float32, n), make([]float32, n), make([]float32, n)
	name := fmt.Sprint(n)
	if err := w.Pull(c.ctx, name, before); err != nil {
		return err
	}
	sum := make([]float64, n)
	grad := anyFloats(n, uint64(n))
	for range 8 {
		mine := slices.Clone(grad)
		for i, g := range mine {
			rest[i] += g
		}
		for i, g := range asFloat8(t, rest) {
			sum[i] += float64(g)
			rest[i] -= g
		}
		if err := w.Push(c.ctx, name, mine); err != nil {
			return err
		}
		if !slices.Equal(grad, mine) {
			return fmt.Errorf("push of %s has changed the gradient", name)
		}
	}
	if err := w.Pull(c.ctx, name, after); err != nil {
		return err
	}
	for i := range sum {
		if want := float64(before[i]) - sum[i]; math.Abs(want-float64(after[i])) > 0.009*(math.Abs(float64(before[i]))+math.Abs(sum[i])) {
			return fmt.Errorf("%s with feedback: element %d is %v, want %v", name, i, after[i], want)
		}
	}
	return nil
}

// With feedback thirty pushes of one gradient come to thirty times that gradient, but for
// what one push loses; without, every one loses the same. Frames are lost, doubled and late:
// what is sent again is what was sent.
func TestFloat8FeedbackThroughLoss(t *testing.T) {
	together(t)
	const n, steps = 1000, 30
	f := newFaulty(8)
	c := newCluster(t, sgdJob(wired("x", shard.Float8E4M3, n), wired("y", shard.Float8E4M3, n)), patient)
	c.proxied("s1", newFrameProxy(t, f.judge))
	grad := anyFloats(n, 1)
	for i := range grad {
		grad[i] /= steps // so that bfloat16 shows the sums well enough
	}
	distance := func(w *ps.Worker, name string) float64 {
		for range steps {
			require.NoError(t, w.Push(c.ctx, name, grad))
		}
		got := make([]float32, n)
		require.NoError(t, w.Pull(c.ctx, name, got))
		var wrong, square float64
		for i, g := range grad {
			d := float64(got[i]) + steps*float64(g)
			wrong += d * d
			square += steps * float64(g) * steps * float64(g)
		}
		return math.Sqrt(wrong / square)
	}
	without, with := distance(c.worker("without"), "x"), distance(c.corrected("with"), "y")
	t.Logf("%.5f without, %.5f with feedback; %d frames dropped, %d doubled, %d late", without, with, f.count(drop), f.count(double), f.count(delay))
	require.Positive(t, f.count(drop)+f.count(double)+f.count(delay))
	require.Greater(t, without, 0.015)
	require.Less(t, with, 0.003, "more than half of that is bfloat16")
}

// Followers have the bits of their owner, through moves.
func TestFloat8FollowersAreBitEqual(t *testing.T) {
	everywhere(t, func(t *testing.T, options ...option) {
		job := layersJob(2, 2, ps.BlockElems+77)
		job.Optimizer = ps.Adam(1e-2)
		for i := range job.Model.Layers {
			job.Model.Layers[i].Wire = shard.Float8E4M3
		}
		c := newCluster(t, job, options...)
		servers := []*ps.Server{c.server("s1"), c.server("s2"), c.server("s3"), c.server("s4")}
		c.placed()
		w := c.corrected("w")
		for round := range 4 {
			for i := range 2 {
				require.NoError(t, w.Push(c.ctx, fmt.Sprintf("l%d", i), anyFloats(ps.BlockElems+77, uint64(round))))
			}
			c.move(shard.ID(round%2), c.otherThan(c.owner(shard.ID(round%2)), round))
		}
		eventually(t, "two followers each, all equal", func() bool { return ps.FollowersEqual(t, servers...) == 4 })
	})
}

// Rows of tables travel so too.
func TestFloat8Rows(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		const dim = 5
		table := shard.Layer{Name: "table", Shape: []int{1000, dim}, Wire: shard.Float8E4M3, Sparse: true}
		c := newCluster(t, sgdJob(table), options...)
		c.server("s1")
		w := c.worker("w")
		ids := []int64{7, -3, 1 << 40, 12}
		grad := vector(len(ids)*dim, -2.5) // of the same size, and so exact
		require.NoError(t, w.PushRows(c.ctx, "table", ids, grad))
		got := make([]float32, len(grad))
		require.NoError(t, w.PullRows(c.ctx, "table", ids, got))
		sameBits(t, vector(len(grad), 2.5), got, "rows")
	})
}

// What no client encodes is refused, and so is a pull that asks for it; the connection and the
// layer go on.
func TestFloat8HostileInput(t *testing.T) {
	settled(t)
	c := newCluster(t, sgdJob(wired("x", shard.Float8E4M3, 2)), patient)
	s := c.server("s1")
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "x", vector(2, -1)))
	p := friend(t, s)
	h := wire.Header{Kind: wire.Push, Encoding: uint8(shard.Float8E4M3), Epoch: 1, Incarnation: 99, Seq: 1, Floor: 1, Count: 2}
	good := []byte{0, 0, 128, 63, 0x38, 0x38}
	for name, payload := range map[string][]byte{
		"no scale": {0x38, 0x38}, "short": good[:5], "long": append(slices.Clone(good), 0), "scale is NaN": {0, 0, 0xc0, 0x7f, 1, 1},
		"scale is zero": make([]byte, 6), "nothing": {},
	} {
		p.write(frame(h, payload))
		r, _ := p.read()
		require.Equal(t, wire.Reply, r.Kind, name)
		require.NotZero(t, r.Code, name)
	}
	h.Kind = wire.Pull
	p.write(frame(h, nil))
	r, _ := p.read()
	require.NotZero(t, r.Code)
	got := make([]float32, 2)
	require.NoError(t, w.Pull(c.ctx, "x", got))
	require.Equal(t, []float32{1, 1}, got)
}

// NaN arrives as NaN; what a gradient with one has lost does not come back.
func TestFloat8NumbersThatAreNone(t *testing.T) {
	settled(t)
	everywhere(t, func(t *testing.T, options ...option) {
		c := newCluster(t, sgdJob(wired("x", shard.Float8E4M3, 3), wired("y", shard.Float8E4M3, 3)), options...)
		c.server("s1")
		w := c.corrected("w")
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		got := make([]float32, 3)
		require.NoError(t, w.PushPull(c.ctx, "x", []float32{nan, inf, -2}, got))
		require.True(t, got[0] != got[0] && got[1] != got[1], "%v", got)
		require.Equal(t, float32(2), got[2])
		require.NoError(t, w.PushPull(c.ctx, "y", []float32{-1, -1, -1}, got))
		require.Equal(t, vector(3, 1), got)
	})
}

// Parts of a layer that are pushed with feedback are encoded one by one; what each has lost is
// there for whatever part has those elements next. A push that fails takes with it what its own
// elements had lost, and nothing else.
func TestFloat8FeedbackOfParts(t *testing.T) {
	settled(t)
	const n = 2*ps.BlockElems + 77
	var deaf atomic.Bool
	job := sgdJob(wired("x", shard.Float8E4M3, n))
	job.MaxShardBytes = 4 * (ps.BlockElems + 64) // two shards, of two requests each
	c := newCluster(t, job, patient)
	shards, err := c.admin.Shards(c.ctx)
	require.NoError(t, err)
	require.Len(t, shards, 2)
	c.proxied("s1", newFrameProxy(t, func(toServer bool, h *wire.Header) fate {
		if toServer && h.Kind == wire.Push && deaf.Load() {
			return drop
		}
		return pass
	}))
	var f codec.Feedback
	w, err := ps.StartWorker(c.ctx, ps.ClientConfig{Node: c.node("w"), Name: "w", Coordinator: c.ref(), Logger: c.log, Feedback: &f})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	rest, sum := make([]float32, n), make([]float32, n)
	same := func() {
		held, err := f.Hold(c.ctx, codec.Place{}, codec.Tensor{Name: "x", Len: n})
		require.NoError(t, err)
		defer held.Release()
		sameBits(t, rest, held.Values, "what was lost")
	}
	push := func(begin, end int, seed uint64) {
		grad := anyFloats(end-begin, seed)
		for i, g := range grad {
			rest[begin+i] += g
		}
		for lo := begin; lo < end; { // as requests carry them
			s := shards[0].Range
			if int64(lo) >= s.End {
				s = shards[1].Range
			}
			first := int(s.Begin)
			hi := min(end, int(s.End), first+((lo-first)/ps.BlockElems+1)*ps.BlockElems)
			for i, g := range asFloat8(t, rest[lo:hi]) {
				sum[lo+i] -= g
				rest[lo+i] -= g
			}
			lo = hi
		}
		require.NoError(t, w.PushRange(c.ctx, "x", begin, grad))
		same()
	}
	cuts := []int{0, 130, 131, ps.BlockElems - 1, ps.BlockElems + 300, n}
	for round := range uint64(3) {
		push(0, n, round)
		for i := range len(cuts) - 1 {
			push(cuts[i], cuts[i+1], 10*round+uint64(i))
		}
	}
	deaf.Store(true)
	ctx, cancel := context.WithTimeout(c.ctx, 200*time.Millisecond)
	defer cancel()
	require.Error(t, w.PushRange(ctx, "x", 130, vector(1000, 1)))
	deaf.Store(false)
	clear(rest[130:1130])
	same()
	push(0, n, 99)
	got := make([]float32, n)
	require.NoError(t, w.Pull(c.ctx, "x", got))
	sameBits(t, rounded(shard.BFloat16, sum), got, "x")
}
