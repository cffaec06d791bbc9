// Package training is the job that the examples run: an MLP on MNIST, trained by
// workers that come and go on parameter servers that come and go.
//
// # Terms
//
// A Plan says what is trained and in which phases. A step is one batch: its gradient
// is pushed and the parameters are pulled. The Feed is an actor that hands out the
// steps: a worker asks for its next step and confirms the last one in the same call.
// The step of a worker that dies goes to another one, so a job needs no particular
// worker. A slot is the identity of a worker in the accounts of the Feed.
//
// The probe is how lost and doubled pushes are counted without trusting the servers'
// own counters: layers under plain SGD with learning rate 1, one row per slot and
// one shared row. Each step pushes -1 to its worker's row and to the shared row, so
// that a row holds the number of its pushes, exactly. What the workers confirmed and
// is not there is lost, what is there beyond what they started is doubled.
//
// # Smallest use
//
//	result, err := training.Run(ctx, training.RunConfig{...}) // the controlling side
//	err = training.RunWorker(ctx, training.WorkerConfig{...}) // each worker
//	err = training.Finish(os.Stdout, options, result, err)    // shows the report
//
// # Concurrency
//
// A Plan is a value. Feed and Recorder may be used from any goroutine. RunWorker
// blocks; each worker needs a goroutine or a process of its own.
//
// # Errors and limits
//
// Errors start with "training:" and name the worker, layer or bound. At most
// MaxWorkers workers, or Plan.Slots, join during the life of a job, replacements included.
//
// # References
//
// Smith et al., Don't Decay the Learning Rate, Increase the Batch Size, ICLR 2018 (the
// last phase). Dynamic data sharding: DLRover, VLDB 2024.
package training
