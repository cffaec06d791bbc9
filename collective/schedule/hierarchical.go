package schedule

import "fmt"

// hierarchical is an all-reduce in which as little as possible goes between the nodes. As
// many ranks of each node as the smallest one has own a column of the buffer each: they
// combine it within the node, then with the owners of that column on the other nodes, and
// send it to the ranks of their own.
func (b *builder) hierarchical() error {
	if len(b.Nodes) != b.Ranks {
		return fmt.Errorf("%w: nodes of %d ranks, must be of all %d", ErrShape, len(b.Nodes), b.Ranks)
	}
	nodes, here, columns := b.groupByNode()
	parts := b.whole().split(columns)
	local, column := nodes[here], None
	for i, rank := range local {
		if rank == b.rank && i < columns {
			column = i
		}
	}
	for i, owner := range local[:columns] {
		if owner != b.rank {
			b.send(owner, parts[i])
		}
	}
	if column != None {
		last := local[len(local)-1]
		if last == b.rank && len(local) > 1 {
			last = local[len(local)-2]
		}
		for _, rank := range local {
			if rank != b.rank {
				b.recv(rank, parts[column], Combine)
				b.last(len(nodes) == 1 && rank == last)
			}
		}
		owners := make([]int, len(nodes))
		for i, node := range nodes {
			owners[i] = node[column]
		}
		b.ring(owners, here, parts[column].split(len(nodes)))
		for _, rank := range local {
			if rank != b.rank {
				b.send(rank, parts[column])
			}
		}
	}
	for i, owner := range local[:columns] {
		if owner != b.rank {
			b.recv(owner, parts[i], Copy)
		}
	}
	return nil
}

// groupByNode returns the ranks of each node, in the order in which the nodes appear, the
// place of the own node among them, and the size of the smallest.
func (b *builder) groupByNode() (nodes [][]int, here, smallest int) {
	place := make(map[int]int)
	for rank, node := range b.Nodes {
		i, known := place[node]
		if !known {
			i = len(nodes)
			place[node] = i
			nodes = append(nodes, nil)
		}
		nodes[i] = append(nodes[i], rank)
	}
	smallest = b.Ranks
	for _, ranks := range nodes {
		smallest = min(smallest, len(ranks))
	}
	return nodes, place[b.Nodes[b.rank]], smallest
}
