package training

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/elasticps/elasticps/examples/internal/mnist"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

const (
	// MaxWorkers is how many workers may join during the life of a job, unless its Plan
	// says otherwise.
	MaxWorkers = 16
	// maxSlots bounds Plan.Slots: a probe has a row for each.
	maxSlots = 4096

	numProbes  = 12  // one for each piece of the largest layer
	probeElems = 128 // columns of a probe
	// maxShardBytes cuts the largest layer into 12 pieces, which 2, 3, 4, 6 or 12
	// servers share evenly.
	maxShardBytes = 68 << 10
)

// Phase is a number of epochs with one batch size and a number of workers.
type Phase struct {
	Epochs    int // passes over the images, at least 1
	BatchSize int // images of one step, at least 1
	Workers   int // how many workers train at the same time, the others stand by; 0: all
}

// Plan says what is trained. It travels to the workers; all of them, and the
// controller, need the same data.
type Plan struct {
	Phases    []Phase
	Optimizer ps.Optimizer // of the model
	Seed      uint64
	NumImages int // the first so many of the training set are used, at least 1
	MaxSteps  int // after so many steps all is done; 0: after all epochs
	Slots     int // workers that may join, replacements included, at most 4096; 0: MaxWorkers
}

// slots is how many workers may join.
func (p Plan) slots() int { return cmp.Or(p.Slots, MaxWorkers) }

// sharedRow is the row of a probe to which every worker pushes, behind those of the slots.
func (p Plan) sharedRow() int { return p.slots() }

// defaultPhases train in four epochs with four asynchronous workers, and average the
// noise away in five more with large batches, for which one worker is enough.
func defaultPhases() []Phase {
	return []Phase{{Epochs: 4, BatchSize: 96}, {Epochs: 5, BatchSize: 2000, Workers: 1}}
}

// sampler returns the batches of the plan's steps, or every fault of the plan.
func (p Plan) sampler() (*mnist.Sampler, error) {
	phases := make([]mnist.Phase, len(p.Phases))
	var faults []error
	if p.Slots < 0 || p.Slots > maxSlots {
		faults = append(faults, fmt.Errorf("training: slots is %d, want 0 to %d", p.Slots, maxSlots))
	}
	if p.MaxSteps < 0 {
		faults = append(faults, fmt.Errorf("training: most steps is %d, want 0 or more", p.MaxSteps))
	}
	for i, phase := range p.Phases {
		phases[i] = mnist.Phase{Epochs: phase.Epochs, BatchSize: phase.BatchSize}
		if phase.Workers < 0 || phase.Workers > p.slots() {
			faults = append(faults, fmt.Errorf("training: workers of phase %d is %d, want 0 to %d", i, phase.Workers, p.slots()))
		}
	}
	s, err := mnist.NewSampler(p.NumImages, phases, p.Seed)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	return s, nil
}

// workersAt is how many workers may train in an epoch at the same time.
func (p Plan) workersAt(epoch int) int {
	for _, phase := range p.Phases {
		if epoch < phase.Epochs {
			if phase.Workers > 0 {
				return phase.Workers
			}
			break
		}
		epoch -= phase.Epochs
	}
	return p.slots()
}

// Job describes the model, the probe and their optimizers to the servers. Updates
// are applied as they come (ASP).
func (p Plan) Job() (ps.Job, error) {
	mlp, err := mnist.NewMLP(mnist.Config{})
	if err != nil {
		return ps.Job{}, err
	}
	job := ps.Job{
		Name: "mnist", Optimizer: p.Optimizer, Optimizers: map[string]ps.Optimizer{}, MaxShardBytes: maxShardBytes,
	}
	for i, l := range mlp.Layers() {
		layer := shard.Layer{Name: l.Name, Shape: l.Shape}
		if i == mnist.FC1Weight || i == mnist.FC2Weight {
			layer.Init.Kind = shard.Assigned
		}
		job.Model.Layers = append(job.Model.Layers, layer)
	}
	for i := range numProbes {
		job.Model.Layers = append(job.Model.Layers, shard.Layer{Name: probeName(i), Shape: []int{p.sharedRow() + 1, probeElems}})
		job.Optimizers[probeName(i)] = ps.SGD(1)
	}
	return job, nil
}

// stepBytes is what one step moves through the servers' links, in bytes: the
// gradients there and the parameters back.
func stepBytes() int64 {
	var elems int64 = probeElems // two rows of a probe, one way
	if mlp, err := mnist.NewMLP(mnist.Config{}); err == nil {
		for _, l := range mlp.Layers() {
			elems += int64(l.Len())
		}
	}
	return 4 * 2 * elems
}

func probeName(i int) string { return fmt.Sprintf("probe.%02d", i) }

// probeOf is the probe that a step pushes to.
func probeOf(step int) int { return step % numProbes }
