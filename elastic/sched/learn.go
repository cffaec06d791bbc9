package sched

import (
	"cmp"
	"slices"
)

const (
	firstLesson = 64      // tasks before the first mix is made of them
	lastLesson  = 1 << 16 // tasks between two mixes in the long run
	maxKinds    = 4096    // requests that are told apart
)

// learned counts the requests that came, for want of a mix that was given.
type learned struct {
	counts map[string]int
	kinds  Mix
	seen   int64
	next   int64
	mix    Mix // of the last lesson
}

// learn counts a request that was placed (one that was not will come again, and again),
// and now and then makes a new mix of what was counted: after 64 tasks, 128, 256 and so on,
// and in the end every 65,536, when all counts are halved so that what comes no more is
// forgotten.
func (c *Cluster) learn(r Request) {
	l := &c.learned
	if len(c.config.Mix) > 0 || !usesMix(c.config.Policy) {
		return
	}
	r = r.normal()
	r.MemoryBytes, r.Custom = 0, nil
	c.key = appendKey(c.key[:0], r, nil)
	i, ok := l.counts[string(c.key)]
	if !ok {
		if len(l.kinds) == maxKinds {
			return
		}
		if l.counts == nil {
			l.counts, l.next = make(map[string]int), firstLesson
		}
		i = len(l.kinds)
		l.counts[string(c.key)] = i
		l.kinds = append(l.kinds, Expected{Request: r})
	}
	l.kinds[i].Count++
	if l.seen++; l.seen < l.next {
		return
	}
	l.next = l.seen + min(l.seen, lastLesson)
	l.mix = slices.Clone(l.kinds)
	slices.SortStableFunc(l.mix, func(a, b Expected) int { return cmp.Compare(b.Count, a.Count) })
	c.forgetScores()
	if l.seen > lastLesson {
		l.halve()
	}
}

func (l *learned) halve() {
	for i := range l.kinds {
		l.kinds[i].Count = (l.kinds[i].Count + 1) / 2
	}
}

// expected is the mix that was given, or else what was learned.
func (c *Cluster) expected() Mix {
	if len(c.config.Mix) > 0 {
		return c.config.Mix
	}
	return c.learned.mix
}

// usesMix says whether a policy weighs by what is expected.
func usesMix(p Policy) bool { return p == Default || p == FGD }
