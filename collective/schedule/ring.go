package schedule

// ranksUpTo is the ranks from 0 to n-1.
func ranksUpTo(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}

// ring is an all-reduce among some ranks, of which this one is at place me; parts[i]
// belongs to the one at place i.
func (b *builder) ring(ranks []int, me int, parts []Range) {
	b.ringReduce(ranks, me, parts)
	b.ringGather(ranks, me, parts)
}

// ringReduce ends with parts[me] combined. A segment is passed on while the next one is
// being received: it was combined a whole part earlier.
func (b *builder) ringReduce(ranks []int, me int, parts []Range) {
	n := len(ranks)
	next, prev := ranks[mod(me+1, n)], ranks[mod(me-1, n)]
	for s := range n - 1 {
		b.exchange(next, parts[mod(me-s-1, n)], prev, parts[mod(me-s-2, n)], Combine)
		b.last(s == n-2)
	}
}

// ringGather begins with parts[me] and ends with all.
func (b *builder) ringGather(ranks []int, me int, parts []Range) {
	n := len(ranks)
	next, prev := ranks[mod(me+1, n)], ranks[mod(me-1, n)]
	for s := range n - 1 {
		b.exchange(next, parts[mod(me-s, n)], prev, parts[mod(me-s-1, n)], Copy)
	}
}
