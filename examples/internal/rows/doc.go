// Package rows keeps the rows of a table that one training step uses.
//
// # Terms
//
// A table is a sparse layer of a job (shard.Layer), its rows have 64-bit ids. A Batch has
// each row of a step once, however often the step names it: what it pulls and pushes is the
// distinct rows, and the gradients of all uses of a row add up before they leave.
//
// # Smallest use
//
//	items := rows.NewBatch("items", 16)
//	items.Reset()
//	at := items.Add(42)             // for every id of the step
//	err := items.Pull(ctx, worker)  // a *ps.Worker
//	x, g := items.Row(at), items.Grad(at)
//	...                             // read x, add to g
//	err = items.Push(ctx, worker)
//
// # Concurrency
//
// A Batch is for one goroutine. It keeps its memory for the next step.
//
// # Errors
//
// They are those of the client, with the name of the table in them.
package rows
