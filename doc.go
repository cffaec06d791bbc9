// Package elasticps is an SDK for training models on elastic parameter servers: the
// parameters live on servers whose number, size and place change while training goes
// on, with no update lost and none applied twice.
//
// The package itself holds nothing. A program imports:
//
//   - [github.com/elasticps/elasticps/ps]: parameter servers, and the workers that push
//     gradients to them and pull parameters from them;
//   - [github.com/elasticps/elasticps/ps/checkpoint]: checkpoints in files, to read, verify
//     and export;
//   - [github.com/elasticps/elasticps/elastic]: the controller that adds and removes
//     servers and moves shards between them by measured load, and the scheduler of tasks on
//     devices, whose decisions are those of [github.com/elasticps/elasticps/elastic/sched];
//   - [github.com/elasticps/elasticps/collective]: gradients averaged between workers without
//     servers;
//   - [github.com/elasticps/elasticps/shard]: the description of a model, its division
//     into shards, and who owns which of them;
//   - [github.com/elasticps/elasticps/shard/store]: where ownership is recorded, in
//     memory, in a file, in etcd or in ZooKeeper;
//   - [github.com/elasticps/elasticps/actor]: the nodes on which all of that runs, one
//     in a single process or many over a network;
//   - [github.com/elasticps/elasticps/topology]: how devices are connected, which go
//     together, and which failure domains take a job;
//   - [github.com/elasticps/elasticps/device]: the devices of a host, whoever makes them,
//     from the vendors' tools, exporters, libraries or the kernel, or simulated; and a pool
//     that gives them out in parts.
//
// # First run
//
// The quick start trains a digit classifier on parameter servers that grow and move
// their shards under it, in one process and without any flag:
//
//	go run ./examples/quickstart
//
// examples/cluster runs the same job as separate processes. The comment of package ps
// has the shortest use by hand.
//
// # Terms
//
// A layer is a named tensor of the model. A shard is a range of one layer and the unit
// of ownership; its epoch counts its owners. A worker pushes gradients, to
// which the server applies its optimizer, and pulls parameters. Workers advance in
// steps, all together (BSP), within n steps of each other (SSP), or freely (ASP).
package elasticps
