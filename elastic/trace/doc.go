// Package trace reads traces of clusters and replays them on the policies of package sched.
//
// # Terms
//
// A Job is a task with the time at which it comes and goes. An Experiment is arrivals without
// departures, as in Weng et al. (USENIX ATC 2023): the tasks of a trace in an order that a
// seed gives, on nodes that are taken, among equals, in an order that it gives as well, each
// placed or turned away. Its Curve says how much of the devices was in use
// when so much had arrived.
//
// # Smallest use
//
//	nodes, err := trace.ReadOpenbNodes(name, file)
//	jobs, err := trace.ReadOpenbPods(name, file)
//	curve, cluster, err := trace.Experiment{Nodes: nodes, Tasks: trace.Tasks(jobs), Seed: 42}.Run()
//	fmt.Println(curve.Allocated[100])
//
// # Concurrency
//
// Nothing is shared: experiments may run beside each other. The package does no I/O of its
// own and is pure.
//
// # Errors
//
// A reader stops at the first row with a fault. What a cell has to be is said by a
// *FieldError with file, line, field and value; columns that are missing or named twice are
// all reported at once.
//
// # Units and limits
//
// At most MaxRows rows and a load of MaxLoad percent.
package trace
