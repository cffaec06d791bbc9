package main

import (
	"cmp"
	"slices"
)

// scored is a prediction and what came of it.
type scored struct {
	score float32
	click bool
}

// auc is the area under the ROC curve: how often a click has a higher score than what is no
// click, equal scores counted half. It is computed from ranks (Fawcett, An introduction to
// ROC analysis, 2006), exactly, and sorts list. NaN is the lowest score. Where
// one of the two kinds is missing it is 0.5.
func auc(list []scored) float64 {
	slices.SortFunc(list, func(a, b scored) int { return cmp.Compare(a.score, b.score) })
	var clicks, ranks float64
	for begin := 0; begin < len(list); {
		end, here := begin, 0
		for ; end < len(list) && cmp.Compare(list[end].score, list[begin].score) == 0; end++ {
			if list[end].click {
				here++
			}
		}
		clicks += float64(here)
		ranks += float64(here) * (float64(begin+end) + 1) / 2 // mean of ranks begin+1 to end
		begin = end
	}
	others := float64(len(list)) - clicks
	if clicks == 0 || others == 0 {
		return 0.5
	}
	return (ranks - clicks*(clicks+1)/2) / (clicks * others)
}
