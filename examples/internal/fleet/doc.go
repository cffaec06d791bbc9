// Package fleet runs a job with tables on parameter servers of this process, whose number
// changes on demand while workers train.
//
// # Terms
//
// A Fleet is a node with the coordinator of the job, its servers and an elastic controller
// that adds and removes servers when it is told to (elastic.Policy.Manual); the load has no
// say. Workers are goroutines, each with a ps.Worker of its own.
//
// # Smallest use
//
//	f, err := fleet.Start(ctx, fleet.Config{Name: "ctr", Job: job, Began: time.Now(), Out: os.Stdout})
//	defer f.Close()
//	err = f.Train(ctx, 2, func(ctx context.Context, i int, w *ps.Worker) error { ... })
//	err = f.Scale(ctx, 3) // while they train
//
// # Concurrency
//
// All methods may be called from any goroutine. The callers' contexts bound what blocks.
//
// # Errors
//
// They are those of packages ps and elastic.
package fleet
