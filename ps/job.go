package ps

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/elasticps/elasticps/shard"
)

// Mode says when an update becomes visible and how far workers may drift apart.
type Mode uint8

// The consistency modes.
const (
	// ASP applies each push when it arrives; nobody waits for anybody.
	ASP Mode = iota
	// BSP sums the pushes of one clock and applies them as one optimizer step when
	// every member has ticked. A pull sees all updates of earlier clocks and none of
	// its own: all workers compute on the same parameters.
	BSP
	// SSP applies each push when it arrives; Tick holds a worker that would run more
	// than Staleness clocks ahead of the slowest member (Ho et al., NIPS 2013).
	SSP
)

// String returns the field's name of the mode.
func (m Mode) String() string {
	names := [...]string{ASP: "ASP", BSP: "BSP", SSP: "SSP"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("mode %d", m)
}

// Consistency is a mode with its bound. The zero value is ASP.
type Consistency struct {
	Mode      Mode
	Staleness uint32 // SSP only: how many clocks a worker may be ahead of the slowest
}

// Job describes what is trained. It is fixed while the job lives: to go on with another learning
// rate or number of replicas, end the job and start one of another Name from its last checkpoint
// (CheckpointConfig.Restore).
type Job struct {
	// Name distinguishes jobs in one coordination store. Default "job".
	Name string
	// Model lists the layers. Required.
	Model shard.Model
	// Optimizer is applied on the servers. The zero value is not valid.
	Optimizer Optimizer
	// Optimizers overrides Optimizer for single layers, by name.
	Optimizers map[string]Optimizer
	// Tables says how sparse layers are kept, by name. The zero value of Table goes for
	// those that it does not name.
	Tables map[string]Table
	// Consistency is ASP by default.
	Consistency Consistency
	// MaxShardBytes bounds the size of one shard, so how finely load can be spread.
	// The default is that of shard.PartitionOptions.
	MaxShardBytes int64
	// Replicas is how many followers each shard has besides its owner, as far as there
	// are servers: a push is acknowledged when owner and followers have it, and a
	// follower takes over when the owner dies. Zero: 1. NoReplicas: none. At most
	// shard.MaxFollowers. The round trip between servers must be well below 350 ms:
	// beyond, what a follower promises is over when the promise arrives.
	Replicas int
	// MinServers is how many servers must have joined before the layers are placed.
	// Default 1.
	MinServers int
	// Datasets are what the workers train on, if they get it from the job
	// (Worker.NextRange). At most MaxDatasets.
	Datasets []Dataset `json:",omitempty"`
}

// NoReplicas as Job.Replicas means that each shard is on one server only: when that dies,
// its shards go back to the last checkpoint.
const NoReplicas = -1

const maxNameBytes = 128

func (j Job) withDefaults() Job {
	if j.Name == "" {
		j.Name = "job"
	}
	if j.MinServers == 0 {
		j.MinServers = 1
	}
	if j.Replicas == 0 {
		j.Replicas = 1
	}
	j.Datasets = slices.Clone(j.Datasets)
	for i, d := range j.Datasets {
		j.Datasets[i] = d.withDefaults()
	}
	return j
}

func (j Job) validate() error {
	var errs []error
	if len(j.Name) > maxNameBytes {
		errs = append(errs, fmt.Errorf("ps: job name of %d bytes, at most %d", len(j.Name), maxNameBytes))
	}
	if err := j.Model.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := j.Optimizer.validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: Job.Optimizer: %w", err))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Optimizers)) {
		if _, ok := j.Model.Index(name); !ok {
			errs = append(errs, fmt.Errorf("%w: Optimizers names %q", ErrUnknownLayer, name))
		}
		if err := j.Optimizers[name].validate(); err != nil {
			errs = append(errs, fmt.Errorf("ps: layer %q: %w", name, err))
		}
	}
	errs = append(errs, j.tableFaults()...)
	if j.Consistency.Mode > SSP {
		errs = append(errs, fmt.Errorf("ps: consistency %v, have ASP, BSP and SSP", j.Consistency.Mode))
	}
	if j.Consistency.Mode != SSP && j.Consistency.Staleness != 0 {
		errs = append(errs, fmt.Errorf("ps: staleness %d with %v, it belongs to SSP", j.Consistency.Staleness, j.Consistency.Mode))
	}
	if j.MaxShardBytes < 0 {
		errs = append(errs, fmt.Errorf("ps: MaxShardBytes %d, at least 0", j.MaxShardBytes))
	}
	if j.Replicas < NoReplicas || j.Replicas > shard.MaxFollowers {
		errs = append(errs, fmt.Errorf("ps: Replicas %d, must be in [%d, %d]", j.Replicas, NoReplicas, shard.MaxFollowers))
	}
	if j.MinServers < 0 {
		errs = append(errs, fmt.Errorf("ps: MinServers %d, at least 0", j.MinServers))
	}
	return errors.Join(append(errs, validateDatasets(j.Datasets))...)
}

// tableFaults reports what is wrong with tables. The rest of the job need not be valid.
func (j Job) tableFaults() (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(j.Tables)) {
		if i, ok := j.Model.Index(name); !ok || !j.Model.Layers[i].Sparse {
			errs = append(errs, fmt.Errorf("%w: Tables names %q, which is no sparse layer", ErrUnknownLayer, name))
		}
		if err := j.Tables[name].validate(j.Consistency); err != nil {
			errs = append(errs, fmt.Errorf("ps: table %q: %w", name, err))
		}
	}
	shards, err := j.partition()
	for i, l := range j.Model.Layers {
		switch o := j.optimizer(l.Name); {
		case !l.Sparse && o.ofRows():
			errs = append(errs, fmt.Errorf("ps: layer %q: %v is for sparse layers", l.Name, o.Kind))
		case l.Sparse && len(l.Shape) == 2 && o.validate() == nil:
			errs = append(errs, j.checkRow(l))
			if err == nil {
				errs = append(errs, j.Tables[l.Name].checkShares(l, slices.DeleteFunc(slices.Clone(shards), func(s shard.Shard) bool { return s.Range.Layer != i })))
			}
		}
	}
	return errs
}

// optimizer is the update rule of a layer.
func (j Job) optimizer(layer string) Optimizer {
	if o, ok := j.Optimizers[layer]; ok {
		return o
	}
	return j.Optimizer
}

func (j Job) partition() ([]shard.Shard, error) {
	return shard.Partition(j.Model, shard.PartitionOptions{MaxShardBytes: j.MaxShardBytes})
}
