package sched

import "fmt"

// Kind is what a task is for. It is advice: Like gives a task to start from.
type Kind uint8

// The kinds.
const (
	// Training computes gradients on whole devices.
	Training Kind = iota
	// Inference answers batches on a part of a small device.
	Inference
	// Preprocessing makes batches, on processors.
	Preprocessing
	// ParameterServer keeps parameters, in the memory of the host.
	ParameterServer
)

const gibibyte = 1 << 30

// Like returns a task of a kind, by the rules of thumb that the project started from:
// training on whole devices, batch inference on a part of a small one, preprocessing and
// parameter servers on processors. Parameter servers are drained before they go, and move
// while they run; preprocessing gives way first. Change what you know better.
func Like(kind Kind, id string) (Task, error) {
	task := Task{ID: id}
	switch kind {
	case Training:
		task.Request = Request{CPU: 8 * Whole, MemoryBytes: 64 * gibibyte, Devices: 1, Share: Whole}
		task.Priority = 5
	case Inference:
		task.Request = Request{CPU: 4 * Whole, MemoryBytes: 16 * gibibyte, Devices: 1, Share: Whole / 2}
		task.Priority, task.Preemptible, task.Movable = 3, true, true
		task.Prefer = map[string]int{"T4": 1, "L4": 1, "A2": 1, "A10": 1, "310P": 1, "S3000": 1}
	case Preprocessing:
		task.Request = Request{CPU: 4 * Whole, MemoryBytes: 16 * gibibyte}
		task.Priority, task.Preemptible, task.Movable = 1, true, true
	case ParameterServer:
		task.Request = Request{CPU: 4 * Whole, MemoryBytes: 64 * gibibyte}
		task.Priority, task.Preemptible, task.Movable, task.Drain = 7, true, true, true
	default:
		return Task{}, fmt.Errorf("sched: Kind %d: want at most %d", kind, ParameterServer)
	}
	return task, nil
}
