// Package sim simulates a cluster over hours or days: jobs come, wait, run and end, nodes fail
// and come back, parameter servers follow their load. It is pure.
//
// # Terms
//
// A Job is workers that run together and, for some, parameter servers with a Load that goes up
// and down. Servers says how many there are: Elastic ones follow elastic.Policy, the one
// of the controller; fixed ones stay as they began. Tasks are placed, preempted and moved by
// package sched. Both are used as in production, unchanged; only time is not. World is what is
// taken for granted of machines.
//
// # Smallest use
//
//	result, err := sim.Run(sim.Config{Nodes: sim.Mixed(10240), Levels: sim.Levels(), Jobs: sim.Day(10240, 0.95, 1)})
//	fmt.Println(result.Allocated, result.Waste)
//
// # What the world is like
//
// A server is a queue (M/M/1): at a load rho, a push takes Service/(1-rho), and load falls on
// servers as the shards do that they own. Workers are slowed only by a server that is
// saturated; all work of a job waits for its busiest server. The network has no other
// traffic. Elastic servers have replicas: when one dies its followers are promoted
// at once. Fixed ones have none: their job goes back to the last checkpoint. So does
// training without servers that loses a worker; a service loses nothing. Moves by
// defragmentation cost nothing but their number. Jobs wait by priority, and small
// ones may go ahead of large ones that find no room.
//
// # Concurrency, determinism
//
// Nothing is shared, runs may go beside each other. The same configuration gives the same
// result on every machine, but for the last digits of means.
//
// # Errors
//
// Run reports every fault of its configuration at once, with value and bound.
//
// # Units and limits
//
// At most 128 servers of a job at its begin. 10,240 devices and 9,000 jobs take some
// twenty seconds of a processor for a day.
//
// # References
//
// M/M/1: Kleinrock, Queueing Systems 1 (1975), section 3.2.
package sim
