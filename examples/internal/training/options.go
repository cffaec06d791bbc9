package training

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/device"
	"github.com/elasticps/elasticps/elastic"
	"github.com/elasticps/elasticps/examples/internal/report"
	"github.com/elasticps/elasticps/ps"
)

// defaultBytesPerSecond is the bandwidth of the simulated device of one server. Four
// workers offer several times as much on any machine that trains in reasonable time.
const defaultBytesPerSecond = 80e6

// Options are the settings that both examples have as flags.
type Options struct {
	Data, JSON                 string
	Seed                       uint64
	LearningRate               float64
	NumImages, NumTest         int     // 0: all that there are
	Epochs, LastEpochs         int     // of the first and the last phase
	BatchSize, LastBatch       int     // of the first and the last phase
	MegabytesPerSecond         float64 // of one simulated device
	MaxServers                 int
	Dwell, DwellDown, Cooldown time.Duration
	MinAccuracy                float64 // below it the run has failed
}

// AddFlags defines the flags, with the defaults of the examples.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	phases := defaultPhases()
	fs.StringVar(&o.Data, "data", "", "folder with the four MNIST files; default: that of the Go module GoMNIST")
	fs.StringVar(&o.JSON, "json", "", "write the result as one JSON object to this file")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of the first weights and of the batches")
	fs.Float64Var(&o.LearningRate, "lr", 0.001, "learning rate of Adam")
	fs.IntVar(&o.NumImages, "images", 0, "train on the first so many images; 0: all")
	fs.IntVar(&o.NumTest, "test-images", 0, "test on the first so many images; 0: all")
	fs.IntVar(&o.Epochs, "epochs", phases[0].Epochs, "epochs with all workers")
	fs.IntVar(&o.BatchSize, "batch", phases[0].BatchSize, "images of a step in the epochs of -epochs")
	fs.IntVar(&o.LastEpochs, "last-epochs", phases[1].Epochs, "epochs after those of -epochs, with large batches and one worker")
	fs.IntVar(&o.LastBatch, "last-batch", phases[1].BatchSize, "images of a step in the epochs of -last-epochs")
	fs.Float64Var(&o.MegabytesPerSecond, "bandwidth", defaultBytesPerSecond/1e6, "MB/s of the simulated device of one server")
	fs.IntVar(&o.MaxServers, "max-servers", 4, "most parameter servers")
	fs.DurationVar(&o.Dwell, "dwell", time.Second, "how long the load must be high before servers are added")
	fs.DurationVar(&o.DwellDown, "dwell-down", time.Second, "how long the load must be low before servers are removed")
	fs.DurationVar(&o.Cooldown, "cooldown", 2*time.Second, "least time between two changes of the number of servers")
	fs.Float64Var(&o.MinAccuracy, "min-accuracy", 0.975, "test accuracy below which the run has failed")
}

// Validate reports every fault that other parts do not report themselves, and a file
// for the result that could not be written at the end.
func (o Options) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("training: "+format, args...))
		}
	}
	fault(o.NumImages < 0, "-images is %d, want 0 or more", o.NumImages)
	fault(o.NumTest < 0, "-test-images is %d, want 0 or more", o.NumTest)
	fault(!(o.MegabytesPerSecond > 0 && o.MegabytesPerSecond <= 1e6), "-bandwidth is %v, want over 0 and at most 1e6", o.MegabytesPerSecond)
	fault(!(o.MinAccuracy >= 0 && o.MinAccuracy <= 1), "-min-accuracy is %v, want 0 to 1", o.MinAccuracy)
	switch o.JSON {
	case "":
	case "-":
		fault(true, `-json is "-", want a file`)
	default:
		if err := report.CheckFile(o.JSON); err != nil {
			fault(true, "-json: %w", err)
		}
	}
	fault(o.MaxServers < 2, "-max-servers is %d, want 2 or more", o.MaxServers)
	return errors.Join(append(faults, o.Policy().Validate())...)
}

// Plan returns what is trained on a training set of numImages.
func (o Options) Plan(numImages int) Plan {
	if o.NumImages > 0 {
		numImages = min(numImages, o.NumImages)
	}
	p := Plan{Optimizer: ps.Adam(o.LearningRate), Seed: o.Seed, NumImages: numImages}
	p.Phases = append(p.Phases, Phase{Epochs: o.Epochs, BatchSize: min(o.BatchSize, numImages)})
	if o.LastEpochs != 0 {
		p.Phases = append(p.Phases, Phase{Epochs: o.LastEpochs, BatchSize: min(o.LastBatch, numImages), Workers: 1})
	}
	return p
}

// Policy returns the scaling policy: the default thresholds with times short enough
// for a run of half a minute. All servers that are too many go at once.
func (o Options) Policy() elastic.Policy {
	return elastic.Policy{
		Dwell: o.Dwell, DwellDown: o.DwellDown, Cooldown: o.Cooldown, Backoff: 2 * time.Second, Max: o.MaxServers, ShrinkBy: 1,
	}
}

// Sim describes the simulated link of a server.
func (o Options) Sim(name string) device.SimLinkConfig {
	const burst = 5 * time.Millisecond // makes up for timers that fire late
	bandwidth := o.MegabytesPerSecond * 1e6
	return device.SimLinkConfig{Name: "sim-" + name, BytesPerSecond: bandwidth, BurstBytes: int64(burst.Seconds() * bandwidth)}
}

// Device describes in words what the servers of a run are bound to.
func (o Options) Device(numWorkers int) string {
	perStep := float64(stepBytes()) / 1e6
	return fmt.Sprintf("each server is bound to a simulated device whose link carries %g MB/s; a step moves %.2f MB "+
		"through it (and as much again where shards have followers), so one server is good for %.0f steps/s, which %d workers exceed",
		o.MegabytesPerSecond, perStep, o.MegabytesPerSecond/perStep, numWorkers)
}
