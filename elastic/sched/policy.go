package sched

import "fmt"

// Policy says which of the nodes that have room is taken.
type Policy uint8

// The policies. All but Random take the node with the highest score, and of equals the
// one whose name sorts first.
const (
	// Default leaves as little as it can of what the expected tasks could not use:
	// fragments as FGD counts them, devices without processor time, and models that
	// some tasks depend on.
	Default Policy = iota
	// Random takes any.
	Random
	// BestFit takes the node with the least left of processor time and devices.
	BestFit
	// DotProduct takes the node whose rest is least like the request.
	DotProduct
	// Packing takes devices in use before idle ones, and nodes in use before idle ones.
	Packing
	// FGD descends the gradient of fragmentation, in a hundred steps.
	FGD
)

// String returns the name of the policy.
func (p Policy) String() string {
	if int(p) >= len(rules) {
		return fmt.Sprintf("policy %d", uint8(p))
	}
	return rules[p].name
}

// Policies lists all of them.
func Policies() []Policy {
	all := make([]Policy, len(rules))
	for i := range all {
		all[i] = Policy(i)
	}
	return all
}

// fit is one way to place a request: on these devices of this node.
type fit struct {
	request  *class
	before   *shape
	after    shape
	fragment int64 // of before
	weights  *weights
}

// maxScore bounds the magnitude of a score; preferences are counted above it.
const maxScore = 1 << 42

// rules is every policy: its score, a pure function, and whether every device on which a
// fraction would fit is scored, or only the one with the least left.
var rules = [...]struct {
	name  string
	each  bool
	score func(*fit) int64
}{
	Default:    {"default", true, scoreDefault},
	Random:     {"random", false, scoreNothing}, // drawn anew for each task
	BestFit:    {"best-fit", false, scoreBestFit},
	DotProduct: {"dot-product", false, scoreDotProduct},
	Packing:    {"packing", false, scorePacking},
	FGD:        {"fgd", true, scoreFGD},
}

// scoreDefault is the fall of the node's fragments, less two fifths of what its devices lose
// of processor time that goes with them, and a fifth of the devices taken times the
// scarcity of their model. As long as nothing is known of what to expect, it is the best
// fit. Finer steps than those of FGD, and no preference among equals but their order,
// did best on the openb traces.
func scoreDefault(f *fit) int64 {
	switch {
	case f.before.count == 0:
		return maxScore/4 + scoreBestFit(f) // processors without devices first
	case f.weights.total == 0:
		return scoreBestFit(f)
	}
	fall := f.fragment - f.weights.fragment(&f.after)
	starved := f.weights.starved(&f.after) - f.weights.starved(f.before)
	scarce := f.weights.scarce[f.before.model] * int64(f.before.idle-f.after.idle)
	return fall - (2*int64(starved)*one+scarce)/5
}

// scoreFGD is the score of Weng et al. (USENIX ATC 2023, section 5): 0 to 100. The coarse
// steps matter: equals are told apart by name, which packs.
func scoreFGD(f *fit) int64 {
	fall := f.fragment - f.weights.fragment(&f.after)
	low, high := 0, len(f.weights.buckets)
	for low < high {
		if mid := (low + high) / 2; f.weights.buckets[mid] <= fall {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return int64(low)
}

func scoreNothing(*fit) int64 { return 0 }

// scoreBestFit is what is left, as a part of the largest node, in steps of a hundredth.
func scoreBestFit(f *fit) int64 {
	left := float64(f.after.cpu)/f.weights.maxCPU + float64(f.after.idle)/f.weights.maxIdle
	return int64(100 * (1 - left/2))
}

// scoreDotProduct is one less the product of what is there and what is asked, as parts of
// the largest node (Grandl et al., Multi-resource packing, SIGCOMM 2014, turned round).
func scoreDotProduct(f *fit) int64 {
	cpu := float64(f.before.cpu) / f.weights.maxCPU * (float64(f.request.need.cpu) / f.weights.maxCPU)
	idle := float64(f.before.idle) / f.weights.maxIdle * (float64(f.before.idle-f.after.idle) / f.weights.maxIdle)
	return int64(100 * (1 - (float64(cpu)+float64(idle))/2))
}

// scorePacking has three bands: idle nodes last, then idle devices of nodes in use, then
// devices in use, the fuller the better.
func scorePacking(f *fit) int64 {
	opened := int64(f.before.wholes() - f.after.wholes())
	switch {
	case f.before.wholes() == int(f.before.count):
		return max(33-int64(f.before.count), int64(f.before.count))
	case opened > 0:
		return max(50-opened, 33)
	}
	var left int64
	for i, free := range f.before.free[:f.before.count] {
		if free != f.after.free[i] {
			left += int64(free) / 10
		}
	}
	return max(100-left/10, 50)
}
