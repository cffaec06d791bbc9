package device

import "time"

// HistoryWindow is the longest window over which a SimLink knows its utilization.
// A longer one is answered for HistoryWindow.
const HistoryWindow = 10 * time.Second

const (
	numCheckpoints  = 1024
	checkpointEvery = HistoryWindow / (numCheckpoints - 2)
)

// checkpoint is the state of the two running sums at one time.
type checkpoint struct {
	at    time.Duration
	busy  time.Duration
	bytes int64
}

// history remembers checkpoints of the running sums of a link over
// HistoryWindow in fixed memory. Its resolution is checkpointEvery. The zero
// value is a link that has not worked before time zero.
type history struct {
	ring  [numCheckpoints]checkpoint
	next  int // where the next one goes
	count int
}

// record remembers c unless the newest checkpoint is too recent. Times never
// go back.
func (h *history) record(c checkpoint) {
	if h.count > 0 && c.at-h.at(h.count-1).at < checkpointEvery {
		return
	}
	h.ring[h.next] = c
	h.next = (h.next + 1) % numCheckpoints
	h.count = min(h.count+1, numCheckpoints)
}

// at returns the i-th checkpoint, the oldest first.
func (h *history) at(i int) checkpoint {
	return h.ring[(h.next-h.count+i+numCheckpoints)%numCheckpoints]
}

// value returns the sums at an earlier time t, given those of now. Work between
// two checkpoints counts as done at their beginning.
func (h *history) value(t time.Duration, now checkpoint) checkpoint {
	lo, hi := 0, h.count // first checkpoint later than t
	for lo < hi {
		mid := (lo + hi) / 2
		if h.at(mid).at > t {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	after := now
	if lo < h.count {
		after = h.at(lo)
	}
	before := checkpoint{}
	if lo > 0 {
		before = h.at(lo - 1)
	}
	v := checkpoint{at: t, bytes: before.bytes}
	v.busy = min(before.busy+(t-before.at), after.busy)
	if after.at > before.at {
		share := float64(t-before.at) / float64(after.at-before.at)
		v.bytes += int64(share * float64(after.bytes-before.bytes))
	}
	return v
}
