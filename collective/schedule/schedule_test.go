package schedule

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// element is what became of one element: the inputs that were combined, in order. An input
// is a rank and the element's index there.
type element []input

type input struct{ rank, index int }

// frame is a message under way: what was sent, and where it is read from only when it is
// received, as in a transport that does not copy.
type frame struct {
	from int
	step Step
	seen []element // what the sender's memory held when it sent
	copy bool      // the transport copied
}

// machine performs the plans of all ranks on symbols.
type machine struct {
	t       *testing.T
	plans   []Plan
	input   [][]element
	buffer  [][]element
	next    []int // step of each rank
	sent    []bool
	wires   map[[2]int][]*frame // by sender and receiver
	inPlace bool
}

func newMachine(t *testing.T, plans []Plan, elements int, inPlace bool) *machine {
	n := len(plans)
	m := &machine{t: t, plans: plans, next: make([]int, n), sent: make([]bool, n), wires: map[[2]int][]*frame{}, inPlace: inPlace}
	for rank := range n {
		in, out := make([]element, elements), make([]element, elements)
		for i := range in {
			in[i] = element{{rank, i}}
			if inPlace || !plans[rank].Fresh {
				out[i] = in[i]
			}
		}
		if inPlace { // what is not kept is the buffer itself
			for i := range in {
				if i < plans[rank].Keep.Begin || i >= plans[rank].Keep.End {
					in[i] = nil
				}
			}
		}
		m.input, m.buffer = append(m.input, in), append(m.buffer, out)
	}
	return m
}

// source is the memory that a step sends from.
func (m *machine) source(rank int, s Step) []element {
	if s.Input && (!m.inPlace || m.plans[rank].Keep.Contains(s.Send)) {
		return m.input[rank]
	}
	return m.buffer[rank]
}

// run performs steps in turn until all are done, and fails when nobody can go on.
func (m *machine) run() {
	for {
		progress, left := false, false
		for rank := range m.plans {
			for m.next[rank] < len(m.plans[rank].Steps) && m.step(rank) {
				progress = true
			}
			left = left || m.next[rank] < len(m.plans[rank].Steps)
		}
		if !left {
			for wire, frames := range m.wires {
				require.Empty(m.t, frames, "frames nobody receives on %v", wire)
			}
			return
		}
		require.True(m.t, progress, "deadlock at steps %v", m.next)
	}
}

// step performs the next step of a rank, or reports that it has to wait.
func (m *machine) step(rank int) bool {
	s := m.plans[rank].Steps[m.next[rank]]
	if s.To != None && !m.sent[rank] {
		require.Positive(m.t, s.Send.Len(), "empty send")
		require.NotEqual(m.t, rank, s.To)
		src := m.source(rank, s)
		f := &frame{from: rank, step: s, seen: slices.Clone(src[s.Send.Begin:s.Send.End])}
		f.copy = s.From != None && s.Send.Overlaps(s.Recv)
		wire := [2]int{rank, s.To}
		m.wires[wire] = append(m.wires[wire], f)
		m.sent[rank] = true
	}
	if s.From != None && !m.receive(rank, s) {
		return false
	}
	m.sent[rank] = false
	m.next[rank]++
	return true
}

func (m *machine) receive(rank int, s Step) bool {
	if s.Recv.Len() <= 0 {
		require.Fail(m.t, "empty receive")
	}
	for peer := range m.plans { // nothing that is under way may change
		for _, f := range m.wires[[2]int{rank, peer}] {
			if f.step.Send.Overlaps(s.Recv) && !f.copy && &m.source(rank, f.step)[0] == &m.buffer[rank][0] {
				return false
			}
		}
	}
	var got []element
	if s.From == rank {
		got = m.input[rank][s.Recv.Begin:s.Recv.End]
	} else {
		wire := [2]int{s.From, rank}
		if len(m.wires[wire]) == 0 {
			return false
		}
		f := m.wires[wire][0]
		m.wires[wire] = m.wires[wire][1:]
		require.Equal(m.t, s.Recv.Len(), f.step.Send.Len(), "frame from %d to %d", s.From, rank)
		got = f.seen
		if !f.copy {
			for i, now := range m.source(s.From, f.step)[f.step.Send.Begin:f.step.Send.End] {
				if !slices.Equal(f.seen[i], now) {
					require.Equal(m.t, f.seen[i], now, "changed while it was under way")
				}
			}
		}
	}
	for i := range got {
		at := &m.buffer[rank][s.Recv.Begin+i]
		if s.Do == Combine {
			*at = append(slices.Clone(*at), got[i]...)
		} else {
			*at = got[i]
		}
		if folds := s.Do != Copy; folds && s.Last != (len(*at) == len(m.plans)) {
			require.Fail(m.t, "last", "rank %d, %+v: %v", rank, s, *at)
		}
	}
	return true
}

// once checks that an element has every rank's contribution at that index exactly once,
// in the order of the ranks if it is a fold.
func once(t *testing.T, e element, ranks, index int, folds bool) {
	want := make(element, ranks)
	for rank := range want {
		want[rank] = input{rank, index}
	}
	if !folds {
		e = slices.Clone(e)
		slices.SortFunc(e, func(a, b input) int { return a.rank - b.rank })
	}
	same(t, want, e)
}

// same is require.Equal, which is slow even when all is well.
func same(t *testing.T, want, got element) {
	t.Helper()
	if !slices.Equal(want, got) {
		require.Equal(t, want, got)
	}
}

var worlds = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}

// counts are those where cutting goes wrong first.
func counts(n int) []int {
	if n > 9 {
		return []int{1, n + 1, 2*n + 1} // nothing new, and slow
	}
	return []int{0, 1, n - 1, n, n + 1, 2*n + 1, 37}
}

// plansOf makes the plans of all ranks.
func plansOf(t *testing.T, n int, plan func(rank int) (Plan, error)) []Plan {
	plans := make([]Plan, n)
	for rank := range plans {
		var err error
		plans[rank], err = plan(rank)
		require.NoError(t, err)
	}
	return plans
}

// each calls f for every size of group, count, segment and both kinds of buffers.
func each(t *testing.T, f func(t *testing.T, s Shape, inPlace bool)) {
	for _, n := range worlds {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			t.Parallel()
			for _, count := range counts(n) {
				for _, segment := range []int{0, 1, 5} {
					if segment == 1 && n > 9 {
						continue // as in counts
					}
					for _, inPlace := range []bool{false, true} {
						f(t, Shape{Ranks: n, Count: count, Segment: segment, Ahead: []int{0, 3, 1, 4}[count%4]}, inPlace)
					}
				}
			}
		})
	}
}

func TestAllReduceCombinesOnce(t *testing.T) {
	for a := Flat; a < Hierarchical; a++ {
		t.Run(a.String(), func(t *testing.T) {
			each(t, func(t *testing.T, s Shape, inPlace bool) { checkAllReduce(t, a, s, inPlace) })
		})
	}
}

func checkAllReduce(t *testing.T, a Algorithm, s Shape, inPlace bool) {
	t.Helper()
	plans := plansOf(t, s.Ranks, func(rank int) (Plan, error) { return AllReduce(a, rank, s) })
	m := newMachine(t, plans, max(s.Count, 1), inPlace)
	m.run()
	if s.Ranks == 1 && !a.Folds() {
		require.Empty(t, plans[0].Steps)
	}
	for rank := range s.Ranks {
		for i := range s.Count {
			once(t, m.buffer[rank][i], s.Ranks, i, a.Folds())
			if !slices.Equal(m.buffer[0][i], m.buffer[rank][i]) && a != RecursiveDoubling {
				require.Equal(t, m.buffer[0][i], m.buffer[rank][i], "ranks differ")
			}
		}
	}
}

func TestHierarchicalForUnevenNodes(t *testing.T) {
	for _, nodes := range [][]int{
		{0},
		{0, 0},
		{0, 1},
		{0, 0, 1},
		{0, 1, 1, 1},
		{7, 3, 7, 3},
		{0, 0, 0, 1, 1},
		{0, 1, 2, 2, 1, 0, 0},
		{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
		{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
		{0, 1, 2, 3, 4},
	} {
		for _, count := range counts(len(nodes)) {
			for _, segment := range []int{0, 2} {
				s := Shape{Ranks: len(nodes), Count: count, Segment: segment, Ahead: 2 * segment, Nodes: nodes}
				checkAllReduce(t, Hierarchical, s, true)
			}
		}
	}
	_, err := AllReduce(Hierarchical, 0, Shape{Ranks: 3, Count: 1, Nodes: []int{0}})
	require.ErrorIs(t, err, ErrShape)
}

// The parts of a nested plan within the nodes: before, an owner has what its node has of its
// column; after, all have what the owners have made of that.
func TestNest(t *testing.T) {
	for _, nodes := range [][]int{{0, 1}, {0, 0, 1}, {0, 0, 1, 1}, {7, 3, 7, 3, 3}, {0, 1, 2, 2, 1, 0, 0}} {
		n := len(nodes)
		for _, count := range counts(n) {
			s := Shape{Ranks: n, Count: count, Segment: 2, Nodes: nodes}
			nested := make([]Nested, n)
			before := plansOf(t, n, func(rank int) (Plan, error) {
				var err error
				nested[rank], err = Nest(rank, s)
				return nested[rank].Before, err
			})
			m := newMachine(t, before, count, true)
			m.run()
			after := newMachine(t, plansOf(t, n, func(rank int) (Plan, error) { return nested[rank].After, nil }), count, true)
			for rank, nest := range nested {
				for i := nest.Column.Begin; i < nest.Column.End; i++ {
					require.Len(t, m.buffer[rank][i], len(slices.DeleteFunc(slices.Clone(nodes), func(x int) bool { return x != nodes[rank] })))
					after.buffer[rank][i] = nil
					for _, owner := range nest.Owners { // the part between the nodes
						require.Equal(t, nest.Column, nested[owner].Column)
						after.buffer[rank][i] = append(after.buffer[rank][i], m.buffer[owner][i]...)
					}
				}
				if nest.Column.Len() > 0 {
					require.Equal(t, rank, nest.Owners[nest.Place])
				}
			}
			after.run()
			for rank := range n {
				for i, e := range after.buffer[rank] {
					once(t, e, n, i, false)
				}
			}
		}
	}
	for _, s := range []Shape{{Ranks: 2, Count: 1, Nodes: []int{0, 0}}, {Ranks: 2, Count: 1, Nodes: []int{0}}, {Ranks: 0}} {
		_, err := Nest(0, s)
		require.ErrorIs(t, err, ErrShape)
	}
}

func TestAmong(t *testing.T) {
	p := Plan{Steps: []Step{{To: 0, From: None}, {To: None, From: 1}, {To: 1, From: 0}}}
	require.Equal(t, []Step{{To: 7, From: None}, {To: None, From: 3}, {To: 3, From: 7}}, p.Among([]int{7, 3}).Steps)
	require.Equal(t, 0, p.Steps[0].To, "the plan itself is as it was")
}

func TestReduceScatterCombinesOnce(t *testing.T) {
	for _, a := range []Algorithm{Ring, Direct} {
		each(t, func(t *testing.T, s Shape, inPlace bool) {
			plans := plansOf(t, s.Ranks, func(rank int) (Plan, error) { return ReduceScatter(a, rank, s) })
			m := newMachine(t, plans, max(s.Ranks*s.Count, 1), inPlace)
			m.run()
			for rank, part := range equal(s.Ranks, s.Count) {
				for i := part.Begin; i < part.End; i++ {
					once(t, m.buffer[rank][i], s.Ranks, i, a.Folds())
				}
				for _, step := range plans[rank].Steps {
					if a == Direct && step.From != None && !part.Contains(step.Recv) {
						require.Fail(t, "writes beyond its part", "%+v", step)
					}
				}
			}
		})
	}
}

func TestAllGatherCopiesEveryPart(t *testing.T) {
	for _, a := range []Algorithm{Ring, Direct} {
		each(t, func(t *testing.T, s Shape, _ bool) {
			plans := plansOf(t, s.Ranks, func(rank int) (Plan, error) { return AllGather(a, rank, s) })
			m := newMachine(t, plans, max(s.Ranks*s.Count, 1), true)
			m.run()
			for rank := range s.Ranks {
				for owner, part := range equal(s.Ranks, s.Count) {
					for i := part.Begin; i < part.End; i++ {
						same(t, element{{owner, i}}, m.buffer[rank][i])
					}
				}
			}
		})
	}
}

func TestBroadcastAndReduce(t *testing.T) {
	for _, a := range []Algorithm{Tree, Chain, Flat, Direct} {
		each(t, func(t *testing.T, s Shape, inPlace bool) {
			for _, root := range []int{0, s.Ranks / 2, s.Ranks - 1} {
				m := newMachine(t, plansOf(t, s.Ranks, func(rank int) (Plan, error) { return Reduce(a, rank, root, s) }), max(s.Count, 1), inPlace)
				m.run()
				for i := range s.Count {
					once(t, m.buffer[root][i], s.Ranks, i, a.Folds())
				}
				if a.Folds() {
					continue
				}
				m = newMachine(t, plansOf(t, s.Ranks, func(rank int) (Plan, error) { return Broadcast(a, rank, root, s) }), max(s.Count, 1), true)
				m.run()
				for rank := range s.Ranks {
					for i := range s.Count {
						same(t, element{{root, i}}, m.buffer[rank][i])
					}
				}
			}
		})
	}
}

func TestAllToAllTransposes(t *testing.T) {
	each(t, func(t *testing.T, s Shape, inPlace bool) {
		m := newMachine(t, plansOf(t, s.Ranks, func(rank int) (Plan, error) { return AllToAll(Direct, rank, s) }), max(s.Ranks*s.Count, 1), inPlace)
		m.run()
		for rank := range s.Ranks {
			for from := range s.Ranks {
				for i := range s.Count {
					same(t, element{{from, rank*s.Count + i}}, m.buffer[rank][from*s.Count+i])
				}
			}
		}
	})
}

// As many segments go ahead as there are connections, where nothing else is waited for.
func TestSegmentsAhead(t *testing.T) {
	for _, a := range []Algorithm{Direct, Ring, HalvingDoubling} {
		for ahead, want := range map[int]int{0: 1, 1: 1, 4: 4} {
			p, err := AllReduce(a, 0, Shape{Ranks: 2, Count: 64, Segment: 2, Ahead: ahead})
			require.NoError(t, err)
			sent := 0
			for _, s := range p.Steps {
				if s.To != None {
					sent++
				}
				if s.From == 1 {
					break
				}
			}
			if a == Direct {
				want = max(want+1, minAhead) + 1 // the next one goes before the first fold
			}
			require.Equal(t, want, sent, "%v, %d ahead", a, ahead)
		}
	}
}

// The combination of a fold does not depend on how the elements were cut into operations.
func TestFoldsKeepTheirOrder(t *testing.T) {
	for a := Flat; a < algorithmEnd; a++ {
		require.Equal(t, a == Flat || a == Direct || a == Shared, a.Folds(), a)
	}
}

func TestRefusesWhatCannotBe(t *testing.T) {
	for _, s := range []Shape{{Ranks: 0}, {Ranks: MaxRanks + 1}, {Ranks: 2, Count: -1}, {Ranks: 2, Count: MaxCount}, {Ranks: 2, Segment: -1}, {Ranks: 2, Ahead: -1}} {
		_, err := AllReduce(Ring, 0, s)
		require.ErrorIs(t, err, ErrShape)
	}
	for _, rank := range []int{-1, 2} {
		_, err := AllGather(Ring, rank, Shape{Ranks: 2})
		require.ErrorIs(t, err, ErrShape)
		_, err = Broadcast(Tree, 0, rank, Shape{Ranks: 2})
		require.ErrorIs(t, err, ErrShape)
	}
	_, err := AllReduce(algorithmEnd, 0, Shape{Ranks: 2})
	require.ErrorContains(t, err, "all-reduce has no algorithm")
	_, err = Reduce(Ring, 0, 0, Shape{Ranks: 2})
	require.ErrorIs(t, err, ErrShape)
	_, err = AllToAll(Ring, 0, Shape{Ranks: 2})
	require.ErrorIs(t, err, ErrShape)
	_, err = ReduceScatter(Tree, 0, Shape{Ranks: 2})
	require.ErrorIs(t, err, ErrShape)
}
