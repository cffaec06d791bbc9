// Package report shows what the examples do: a progress line while they train
// and a table or a JSON object when they are done.
//
// # Terms
//
// A Status is one moment of a run, a Report its end. The freeze of a migration
// is the time in which the moving shard acknowledged no push. Lost counts
// acknowledged pushes that are missing in the parameters, doubled those that
// are in them more than once.
//
// # Smallest use
//
//	progress, err := report.NewProgress(report.ProgressConfig{Out: os.Stdout, TotalSteps: 2345})
//	progress.Update(report.Status{Step: 1, Epoch: 1, Epochs: 5, Loss: 2.3, Samples: 128, NumServers: 1})
//	progress.Close()
//	result := report.Report{TestAccuracy: 0.978, Wall: 40 * time.Second}
//	err = result.WriteTable(os.Stdout)
//	err = result.WriteJSON("result.json")
//
// # Concurrency
//
// A Progress may be used by several goroutines; its lines never mix. A Report
// is a plain value. Nothing here starts a goroutine.
//
// # Errors and limits
//
// Every error starts with "report:" and names the file or the value and its
// bound. A progress line on a terminal has at most 79 columns.
package report
