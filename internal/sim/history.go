package sim

import "time"

// Operation is one push or pull of a worker as the worker saw it.
type Operation struct {
	Worker       int
	Shard, Block int
	// IsPush tells a push, which adds Set to the block, from a pull, which got Set.
	IsPush bool
	Set    uint64
	Call   time.Duration
	// Return is when the answer came, 0 if none did: a push may have been applied then.
	Return time.Duration
}

// History is what the workers saw of a shard, in the order of the calls. Lost says that
// updates were lost for want of a copy, so that it need not be linearizable.
func (w *World) History(shard int) (ops []Operation, lost bool) {
	for _, o := range w.operations {
		if o.shard != shard || (o.push == nil && o.answered == 0) {
			continue
		}
		op := Operation{Worker: o.k.index, Shard: shard, Block: o.block, Set: o.set, Call: o.call, Return: o.answered}
		if o.push != nil {
			op.IsPush, op.Set = true, o.push.bit
		}
		ops = append(ops, op)
	}
	return ops, w.shards[shard].losses > 0
}

// NumShards is the number of shards of the job.
func (w *World) NumShards() int { return len(w.shards) }
