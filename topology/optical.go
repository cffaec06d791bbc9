package topology

import "math"

const (
	// wholeMarginDB is the distance to the receiver's limit from which on a link counts
	// as healthy: the 3 dB that are usual as a margin for ageing and repairs.
	wholeMarginDB = 3
	// limitErrorRate is the rate of bit errors that the forward error correction of
	// 100 Gb/s and faster Ethernet can just correct: RS(544,514), IEEE 802.3 clause 91.
	limitErrorRate = 2.4e-4
	// wholeDecades is how many powers of ten below that a link counts as healthy.
	wholeDecades = 2
	// flapCost is the cost of each time that the link went down in the last hour.
	flapCost = 100
)

// Optics is what an optical module reports about its link. NaN, and 0 for the
// error rate, stand for what it does not report.
type Optics struct {
	// ReceiveDBm is the power that arrives, in dBm.
	ReceiveDBm float64
	// LimitDBm is the lowest power at which the module works, its low alarm threshold.
	LimitDBm float64
	// ErrorRate is the share of wrong bits before correction, 0 to 1.
	ErrorRate float64
	// Flaps is how often the link went down in the last hour.
	Flaps int
}

// Cost returns what the link is to be charged for its state: the most that any of the
// figures says. Power costs nothing from 3 dB above the limit on and everything at the
// limit; errors cost nothing up to a hundredth of what can be corrected and everything at
// that rate, in proportion to the logarithm; every flap costs a tenth. What is not reported costs
// nothing. The weights are this project's choice.
func (o Optics) Cost() Cost {
	worst := 0.0
	if margin := (o.ReceiveDBm - o.LimitDBm) / wholeMarginDB; !math.IsNaN(margin) {
		worst = max(worst, 1-margin)
	}
	if o.ErrorRate > 0 {
		worst = max(worst, 1-math.Log10(limitErrorRate/o.ErrorRate)/wholeDecades)
	}
	flaps := Cost(min(max(o.Flaps, 0), int(Down)/flapCost) * flapCost)
	return max(flaps, Cost(math.Round(min(worst, 1)*float64(Down))))
}
