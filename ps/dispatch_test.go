package ps

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// begins says where the ranges of an epoch begin, in the order in which they are handed out.
func begins(d Dataset, epoch int) []int64 {
	var list []int64
	for i := range d.ranges() {
		list = append(list, d.at(int64(epoch)*d.ranges()+i).Begin)
	}
	return list
}

func TestRangesCoverTheRecords(t *testing.T) {
	for _, records := range []int64{0, 1, 2, 9, 10, 11, 99, 1000} {
		for _, shuffle := range []bool{false, true} {
			d := Dataset{Name: "d", Records: records, RangeRecords: 10, Epochs: 3, Shuffle: shuffle, Seed: 7}
			require.NoError(t, d.validate())
			for epoch := range d.Epochs {
				seen := make([]int, records)
				for i := range d.ranges() {
					r := d.at(int64(epoch)*d.ranges() + i)
					require.Equal(t, epoch, r.Epoch)
					var list []int64
					for x := range r.Records() {
						require.True(t, r.Begin <= x && x < r.End, "%d of %+v", x, r)
						seen[x]++
						list = append(list, x)
					}
					require.Len(t, list, int(r.End-r.Begin))
					require.True(t, shuffle || slices.IsSorted(list))
				}
				for x, n := range seen {
					require.Equal(t, 1, n, "record %d of %d in epoch %d", x, records, epoch)
				}
			}
		}
	}
}

func TestShuffleFollowsFromTheSeed(t *testing.T) {
	d := Dataset{Name: "d", Records: 1000, RangeRecords: 10, Epochs: 3, Shuffle: true, Seed: 7}
	first := begins(d, 0)
	require.Equal(t, first, begins(d, 0))
	require.NotEqual(t, first, begins(d, 1), "epochs differ")
	require.NotEqual(t, begins(d, 1), begins(d, 2))
	other := d
	other.Seed = 8
	require.NotEqual(t, first, begins(other, 0), "seeds differ")
	require.False(t, slices.IsSorted(first))
	within := func(r RecordRange) []int64 { return slices.Collect(r.Records()) }
	require.Equal(t, within(d.at(3)), within(d.at(3)))
	inPlace := func(r RecordRange) (list []int64) {
		for _, x := range within(r) {
			list = append(list, x-r.Begin)
		}
		return list
	}
	require.NotEqual(t, inPlace(d.at(3)), inPlace(d.at(4)), "ranges differ")
	for range d.at(3).Records() {
		break // fine as well
	}
}

// TestPermuteIsEven counts where each place goes with many keys.
func TestPermuteIsEven(t *testing.T) {
	const n, keys = 10, 20000
	var count [n][n]int
	for key := range uint64(keys) {
		seen := [n]bool{}
		for x := range uint64(n) {
			y := permute(x, n, mix(key, 0))
			require.False(t, seen[y])
			seen[y] = true
			count[x][y]++
		}
	}
	for x := range count {
		chi := 0.0
		for _, c := range count[x] {
			chi += math.Pow(float64(c)-keys/n, 2) / (keys / n)
		}
		require.Less(t, chi, 27.9, "place %d: chi squared of 9 degrees, 0.001", x)
	}
}

func TestHugeDatasets(t *testing.T) {
	d := Dataset{Name: "d", Records: math.MaxInt64, RangeRecords: math.MaxInt64 - 1, Epochs: 1 << 60, Shuffle: true}
	require.NoError(t, d.validate())
	last := d.at(d.positions() - 1)
	require.Equal(t, 1<<60-1, last.Epoch)
	require.True(t, last.Begin == 0 && last.End == math.MaxInt64-1 || last.Begin == math.MaxInt64-1 && last.End == math.MaxInt64, "%+v", last)
	d = Dataset{Name: "d", Records: 1 << 62, RangeRecords: 1, Epochs: 1, Shuffle: true}
	require.NoError(t, d.validate())
	r := d.at(1<<62 - 1)
	require.True(t, 0 <= r.Begin && r.End == r.Begin+1 && r.End <= 1<<62)
	d.Epochs = 2
	require.ErrorContains(t, d.validate(), "4611686018427387904 ranges in each of 2 epochs, at most 4611686018427387904")
	d.RangeRecords = 1 << 40
	s := newDispatch(d)
	s.limit = s.wanted()
	got, err := s.take(1, nil, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{0}, got)
}

func TestDatasetValidate(t *testing.T) {
	job := Job{Datasets: []Dataset{{Records: -1}, {Name: "a", RangeRecords: -1, Records: 1}, {Name: "a", Epochs: -3}}}.withDefaults()
	err := validateDatasets(job.Datasets)
	for _, text := range []string{"name of 0 bytes", "Records -1", "RangeRecords -1", "Epochs -3", `two datasets named "a"`} {
		require.ErrorContains(t, err, text)
	}
	require.ErrorContains(t, validateDatasets(make([]Dataset, 17)), "17 Datasets, at most 16")
	require.NoError(t, validateDatasets([]Dataset{Dataset{Name: "d"}.withDefaults()}))
}

// dataWorld is a dispatch with workers for a test: what each has, as it knows itself.
type dataWorld struct {
	t        *testing.T
	rng      *rand.Rand
	d        *dispatch
	store    []byte // what the store has
	has      map[uint64][]int64
	next     uint64
	finished map[int64]bool
}

func newDataWorld(t *testing.T, seed uint64, d Dataset) *dataWorld {
	w := &dataWorld{t: t, rng: rand.New(rand.NewPCG(seed, 1)), d: newDispatch(d), has: map[uint64][]int64{}, finished: map[int64]bool{}}
	w.write()
	return w
}

// write has the store know everything.
func (w *dataWorld) write() {
	limit := w.d.wanted()
	text, err := w.d.state(limit).encode()
	require.NoError(w.t, err)
	w.store, w.d.limit = text, limit
}

// restart is another coordinator. Some workers come back to it, others died with the first.
func (w *dataWorld) restart() {
	s, err := decodeDispatchState(w.store)
	require.NoError(w.t, err)
	w.d, err = s.resume(w.d.data)
	require.NoError(w.t, err)
	for _, id := range slices.Sorted(maps.Keys(w.has)) {
		if w.rng.IntN(4) > 0 {
			w.d.claim(id, w.has[id])
		} else {
			delete(w.has, id)
		}
	}
	w.d.settle()
	w.write()
}

func (w *dataWorld) step() {
	if len(w.has) == 0 || len(w.has) < 8 && w.rng.IntN(4) == 0 {
		w.next++
		w.has[w.next] = nil
	}
	live := slices.Sorted(maps.Keys(w.has))
	id := live[w.rng.IntN(len(live))]
	switch w.rng.IntN(10) {
	case 0:
		w.restart()
	case 1:
		w.d.lose(id)
		delete(w.has, id)
	case 2, 3, 4, 5:
		want := 1 + w.rng.IntN(3)
		got, err := w.d.take(id, w.has[id], want)
		if err != nil {
			require.True(w.t, len(w.d.free) == 0)
			w.write()
			return
		}
		again, err := w.d.take(id, w.has[id], want)
		require.NoError(w.t, err)
		require.Equal(w.t, got, again, "asked again")
		if w.rng.IntN(3) > 0 { // else the answer is lost
			for _, p := range got {
				require.False(w.t, w.finished[p], "range %d was finished", p)
			}
			w.has[id] = append(w.has[id], got...)
		}
	default:
		if len(w.has[id]) == 0 {
			return
		}
		p := w.has[id][0]
		changed, err := w.d.finish(id, p)
		require.NoError(w.t, err)
		require.True(w.t, changed)
		w.write()
		w.has[id] = w.has[id][1:]
		require.False(w.t, w.finished[p], "finished twice")
		w.finished[p] = true
	}
}

// check compares the parts of the state with each other.
func (w *dataWorld) check() {
	sound := slices.IsSorted(w.d.free) && w.d.next <= w.d.limit
	held := 0
	for id, list := range w.d.held {
		sound = sound && len(list) > 0 && len(list) <= maxTaken
		for _, p := range list {
			sound = sound && w.d.holders[p] == id
			held++
		}
	}
	for _, p := range w.d.free {
		holder, open := w.d.holders[p]
		sound = sound && open && holder == nobody
	}
	for p := range w.d.holders {
		sound = sound && !w.finished[p] && p < w.d.next
	}
	if !sound || len(w.d.holders) != held+len(w.d.free)+w.d.unclaimed {
		require.Fail(w.t, "the state does not fit together", "%+v", w.d)
	}
}

// TestEachRangeIsFinishedOnce: workers and coordinators come, go, and lose answers, and
// each range of each epoch is finished by exactly one worker.
func TestEachRangeIsFinishedOnce(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := Dataset{Name: "d", Records: 1 + int64(seed)*13, RangeRecords: 5, Epochs: 1 + int(seed%3), Shuffle: seed%2 == 0, EpochBarrier: seed%5 == 0}
			w := newDataWorld(t, seed, d)
			for steps := 0; !w.d.ended(); steps++ {
				require.Less(t, steps, 100000)
				w.step()
				w.check()
			}
			require.Len(t, w.finished, int(d.positions()))
			_, err := w.d.take(99, nil, 1)
			require.ErrorIs(t, err, ErrEndOfData)
		})
	}
}

func TestTakeSaysWhyThereIsNothing(t *testing.T) {
	d := newDispatch(Dataset{Name: "d", Records: 4, RangeRecords: 1, Epochs: 2, EpochBarrier: true})
	_, err := d.take(1, nil, 1)
	require.ErrorIs(t, err, errWaiting, "the store knows of none")
	d.limit = d.wanted()
	require.EqualValues(t, 8, d.limit)
	got, err := d.take(1, nil, 3)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 2}, got)
	got, err = d.take(2, nil, 3)
	require.NoError(t, err)
	require.Equal(t, []int64{3}, got, "the rest of the epoch")
	_, err = d.take(2, got, 1)
	require.ErrorIs(t, err, ErrNoRange)
	require.ErrorContains(t, err, "others have the last 4 of epoch 1")
	d.lose(1)
	require.Equal(t, DatasetStatus{Name: "d", Epoch: 1, Ranges: 8, Outstanding: 1, Returned: 3}, d.status())
	got, err = d.take(3, nil, 9)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 1, 2}, got, "those that came back first")
	_, err = d.finish(3, 4)
	require.ErrorIs(t, err, ErrConflict)
	_, err = d.finish(2, 0)
	require.ErrorIs(t, err, ErrConflict)
	_, err = d.finish(2, -1)
	require.ErrorIs(t, err, ErrConflict)
	for p := range int64(4) {
		worker := uint64(3)
		if p == 3 {
			worker = 2
		}
		changed, err := d.finish(worker, p)
		require.True(t, changed)
		require.NoError(t, err)
		changed, err = d.finish(worker, p)
		require.False(t, changed)
		require.NoError(t, err, "twice is fine")
	}
	got, err = d.take(3, nil, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{4}, got, "the next epoch")
	many := newDispatch(Dataset{Name: "d", Records: 1000, RangeRecords: 1, Epochs: 1})
	many.limit = many.wanted()
	got, err = many.take(1, nil, 1000)
	require.NoError(t, err)
	require.Len(t, got, maxTaken)
	_, err = many.take(1, got, 1)
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorContains(t, err, "64 ranges")
}

// TestManyOpenRanges: the state is bounded, and fits a value of the store at its bound.
func TestManyOpenRanges(t *testing.T) {
	d := newDispatch(Dataset{Name: "d", Records: MaxRanges, RangeRecords: 1, Epochs: 1})
	worker := uint64(1)
	for ; len(d.holders) < maxOpen; worker++ {
		d.limit = d.wanted()
		if _, err := d.take(worker, nil, maxTaken); err != nil {
			require.ErrorIs(t, err, errWaiting)
		}
	}
	_, err := d.take(worker, nil, 1)
	require.ErrorIs(t, err, errWaiting)
	text, err := d.state(d.wanted()).encode()
	require.NoError(t, err)
	require.Less(t, len(text), 1<<20)
	s, err := decodeDispatchState(text)
	require.NoError(t, err)
	_, err = s.resume(d.data)
	require.NoError(t, err)
}

func TestResumeRefuses(t *testing.T) {
	d := Dataset{Name: "d", Records: 100, RangeRecords: 10, Epochs: 2}
	good := dispatchState{Dataset: d, Next: 12, Limit: 20, Open: []int64{0, 3, 8}}
	s, err := good.resume(d)
	require.NoError(t, err)
	require.Equal(t, 3+8, s.unclaimed)
	for _, change := range []func(*dispatchState){
		func(s *dispatchState) { s.Next = -1 },
		func(s *dispatchState) { s.Next = 21; s.Limit = 21 },
		func(s *dispatchState) { s.Limit = 11 },
		func(s *dispatchState) { s.Limit = math.MaxInt64 },
		func(s *dispatchState) { s.Open = []int64{-1} },
		func(s *dispatchState) { s.Open = []int64{12} },
		func(s *dispatchState) { s.Open = []int64{3, 0} },
		func(s *dispatchState) { s.Open = []int64{3, 9} },
		func(s *dispatchState) { s.Open = []int64{3, math.MaxInt64} },
		func(s *dispatchState) { s.Open = make([]int64, maxOpen+1) },
		func(s *dispatchState) { s.Dataset.Records = 101 },
		func(s *dispatchState) { s.Dataset.Seed = 1 },
		func(s *dispatchState) { s.Dataset.Name = "e" },
	} {
		bad := good
		change(&bad)
		_, err := bad.resume(d)
		require.ErrorIs(t, err, ErrConflict, "%+v", bad)
	}
	longer := d
	longer.Epochs = 5
	s, err = good.resume(longer)
	require.NoError(t, err)
	require.EqualValues(t, 50, s.data.positions())
	shorter := d
	shorter.Epochs = 1
	_, err = good.resume(shorter)
	require.ErrorIs(t, err, ErrConflict, "it is in the second epoch")
}

// FuzzDispatchState decodes the progress of a dataset: what is taken can be gone on with,
// and is written as it was read.
func FuzzDispatchState(f *testing.F) {
	d := Dataset{Name: "d", Records: 100, RangeRecords: 10, Epochs: 2}
	for _, s := range []dispatchState{{Dataset: d}, {Dataset: d, Next: 12, Limit: 20, Open: []int64{0, 3, 8}}, {Dataset: d, Next: 20, Limit: 20}} {
		text, err := s.encode()
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := decodeDispatchState(text)
		if err != nil {
			require.ErrorIs(t, err, ErrConflict)
			return
		}
		r, err := s.resume(d)
		if err != nil {
			require.ErrorIs(t, err, ErrConflict)
			return
		}
		again, err := r.state(r.next).encode()
		require.NoError(t, err)
		var back dispatchState
		require.NoError(t, json.Unmarshal(again, &back))
		b, err := back.resume(d)
		require.NoError(t, err)
		require.Equal(t, r.holders, b.holders)
		r.settle()
		for worker := uint64(1); !r.ended(); worker++ {
			r.limit = r.wanted()
			got, err := r.take(worker, nil, maxTaken)
			require.NoError(t, err)
			for _, p := range got {
				_, err := r.finish(worker, p)
				require.NoError(t, err)
			}
		}
	})
}
