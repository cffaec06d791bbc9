// Package pipeline runs a model that is divided into stages, each on a rank of its own, on
// batches that are divided into micro-batches.
//
// # Terms
//
// Stage s is rank s of a pipeline-parallel group. A micro-batch goes forward from stage to
// stage, which computes its part of the model, and its gradients go backward. It is in flight
// in a stage from its forward to its backward step there. A queue holds the tensors that one
// stage has sent to another: they are put into an [Outlet] and taken from an [Inlet]. A [Stage]
// opens those that it needs; both can be used without it, for another schedule.
//
// # Smallest use
//
//	s, err := pipeline.Start(ctx, pipeline.Config{Node: node, Group: parallel.Pipeline, NumMicros: 8, In: 256, Out: 128})
//	defer s.Close()
//	for each batch {
//		err = s.Run(ctx, work) // calls work.Forward and work.Backward in the order of 1F1B
//	}
//
// # Schedule
//
// [Steps] is one forward, one backward (1F1B): stage s of n goes forward n-s-1 times, then
// forward and backward in turn, then backward. No more than n-s micro-batches are in
// flight there, however many there are, and gradients are summed in their order.
//
// # Queues
//
// The token of a tensor, its micro-batch and length, goes to the mailbox of an actor of the
// receiving stage, which has room for Depth of them; the tensor goes by a message of the group,
// straight from the sender's slice to a buffer of the receiver, of which there are Depth. The
// token is a call, answered when the buffer is free again. While Depth tensors were put and not
// released, the sender waits until its context ends: nothing was sent in that case, and nothing
// is lost. When there is room, token and tensor follow, and the end of the context is one of
// the group, as in Group.Send.
//
// Between two ranks of a group there is one queue in each direction, and no other messages.
//
// # Concurrency
//
// A Stage belongs to one goroutine, but for Close. Both ends of a queue may be used from any.
//
// # Errors
//
// An [*Error] says which end of which queue failed, at which micro-batch. It wraps the cause:
// what the group failed with, the end of the context, [ErrOrder] or [ErrClosed]. ErrArgument of
// package collective is wrapped by errors about a Config, before anything was sent.
//
// # Limits
//
// MaxStages stages, MaxMicros micro-batches, tensors of float32 of one length for each queue,
// whose Depth buffers are allocated when it is opened.
//
// # References
//
// Harlap et al., PipeDream: Fast and Efficient Pipeline Parallel DNN Training, 2018 (one
// forward, one backward). Narayanan et al., Efficient Large-Scale Language Model Training on
// GPU Clusters Using Megatron-LM, SC 2021, section 2.2 (with a flush after each batch). Huang
// et al., GPipe, NeurIPS 2019 (micro-batches).
package pipeline
