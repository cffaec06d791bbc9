package schedule

// minAhead is how many segments are sent to each rank at least before the first one is folded:
// with one, the ranks would wait for each other at every segment.
const minAhead = 2

// flat sends the input to all others and folds theirs.
func (b *builder) flat() {
	parts := make([]Range, b.Ranks)
	for i := range parts {
		parts[i] = b.whole()
	}
	b.scatterFold(parts)
}

// scatterFold sends part i of the input to rank i, and folds what arrives for the own part.
func (b *builder) scatterFold(parts []Range) {
	rounds, ahead := 0, max(minAhead, b.Ahead+1)
	for _, p := range parts {
		rounds = max(rounds, len(b.segments(p)))
	}
	for i := range min(ahead, rounds) {
		b.contribute(parts, i)
	}
	for i := range rounds {
		if i+ahead < rounds {
			b.contribute(parts, i+ahead)
		}
		if mine, ok := b.segment(parts[b.rank], i); ok {
			b.fold(mine)
		}
	}
}

// contribute sends segment i of each part to its owner.
func (b *builder) contribute(parts []Range, i int) {
	for k := 1; k < b.Ranks; k++ {
		to := mod(b.rank+k, b.Ranks)
		if r, ok := b.segment(parts[to], i); ok {
			b.steps = append(b.steps, Step{To: to, Send: r, Input: true, From: None})
		}
	}
}

// fold combines one range of all ranks in their order.
func (b *builder) fold(r Range) {
	for from := range b.Ranks {
		do := Combine
		if from == 0 {
			do = First
		}
		b.steps = append(b.steps, Step{To: None, From: from, Recv: r, Do: do, Last: from == b.Ranks-1})
	}
}

// gatherAll sends the own part to all and receives theirs.
func (b *builder) gatherAll(parts []Range) {
	for k := 1; k < b.Ranks; k++ {
		b.send(mod(b.rank+k, b.Ranks), parts[b.rank])
	}
	for k := 1; k < b.Ranks; k++ {
		from := mod(b.rank-k, b.Ranks)
		b.recv(from, parts[from], Copy)
	}
}

// gatherTo sends the own part to root, which receives all.
func (b *builder) gatherTo(root int, parts []Range) {
	if b.rank != root {
		b.send(root, parts[b.rank])
		return
	}
	for from := range b.Ranks {
		if from != root {
			b.recv(from, parts[from], Copy)
		}
	}
}
