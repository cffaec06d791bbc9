package mnist

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// MaxEpochs limits the number of epochs of all phases of a Sampler together.
const MaxEpochs = 1 << 16

// Phase is a number of epochs with one batch size. A last phase with larger
// batches does what a lower learning rate does, averages the noise of the
// gradients away, and needs fewer pushes (Smith et al., "Don't Decay the Learning
// Rate, Increase the Batch Size", 2018).
type Phase struct {
	// Epochs is the number of passes over the set, at least 1.
	Epochs int
	// BatchSize is the number of images of one step, at least 1 and at most the
	// set. The last step of an epoch is shorter if it does not divide the set.
	BatchSize int
}

// Sampler cuts shuffled passes over a Set into batches. It is a pure function
// of its arguments: step s is the same batch in every Sampler with the same
// ones, so workers that take different steps share each epoch without talking
// to each other. A Sampler is not for use by several goroutines.
type Sampler struct {
	numImages int
	phases    []Phase
	seed      uint64
	numSteps  int
	epoch     int // epoch that order is shuffled for, -1 before the first
	order     []int32
}

// NewSampler returns a Sampler over numImages images that goes through the
// phases, which it copies. The error holds a *ShapeError for each value out of
// bounds.
func NewSampler(numImages int, phases []Phase, seed uint64) (*Sampler, error) {
	if numImages < 1 || numImages > MaxImages {
		return nil, &ShapeError{What: "images of the set", Got: numImages, Min: 1, Max: MaxImages}
	}
	s := &Sampler{numImages: numImages, phases: slices.Clone(phases), seed: seed, epoch: -1}
	var faults []error
	if len(phases) == 0 {
		faults = append(faults, &ShapeError{What: "number of phases", Got: 0, Min: 1, Max: MaxEpochs})
	}
	left := MaxEpochs
	for i, phase := range phases {
		if phase.Epochs < 1 || phase.Epochs > left {
			what := fmt.Sprintf("number of epochs of phase %d", i)
			faults = append(faults, &ShapeError{What: what, Got: phase.Epochs, Min: 1, Max: left})
			continue
		}
		left -= phase.Epochs
		if phase.BatchSize < 1 || phase.BatchSize > numImages {
			what := fmt.Sprintf("batch size of phase %d", i)
			faults = append(faults, &ShapeError{What: what, Got: phase.BatchSize, Min: 1, Max: numImages})
			continue
		}
		s.numSteps += phase.Epochs * s.stepsPerEpoch(phase)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	s.order = make([]int32, numImages)
	return s, nil
}

// NumSteps returns the number of steps of all phases together.
func (s *Sampler) NumSteps() int { return s.numSteps }

// NumEpochs returns the number of epochs of all phases together.
func (s *Sampler) NumEpochs() int {
	epochs := 0
	for _, phase := range s.phases {
		epochs += phase.Epochs
	}
	return epochs
}

// Epoch returns the epoch of a step, both counted from 0; NumEpochs for a step
// behind the last, 0 for a negative one.
func (s *Sampler) Epoch(step int) int {
	epoch, _, _ := s.locate(step)
	return epoch
}

// Batch returns the images of a step, counted from 0 over all phases; nil for a
// step that there is not. Every image appears exactly once in the steps of an
// epoch. The slice is valid until the next call.
func (s *Sampler) Batch(step int) []int32 {
	if step < 0 || step >= s.numSteps {
		return nil
	}
	epoch, begin, batchSize := s.locate(step)
	if epoch != s.epoch {
		s.shuffle(epoch)
	}
	return s.order[begin:min(begin+batchSize, s.numImages)]
}

// locate finds the epoch of a step, where in its order the batch begins, and
// the size of a full batch.
func (s *Sampler) locate(step int) (epoch, begin, batchSize int) {
	step = max(step, 0)
	for _, phase := range s.phases {
		perEpoch := s.stepsPerEpoch(phase)
		if step < phase.Epochs*perEpoch {
			return epoch + step/perEpoch, step % perEpoch * phase.BatchSize, phase.BatchSize
		}
		step -= phase.Epochs * perEpoch
		epoch += phase.Epochs
	}
	return epoch, 0, 0
}

func (s *Sampler) stepsPerEpoch(phase Phase) int {
	return (s.numImages + phase.BatchSize - 1) / phase.BatchSize
}

func (s *Sampler) shuffle(epoch int) {
	for i := range s.order {
		s.order[i] = int32(i)
	}
	rng := rand.New(rand.NewPCG(s.seed, uint64(epoch)))
	rng.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
	s.epoch = epoch
}
