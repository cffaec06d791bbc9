// Package sched decides which node and which devices a task gets, who has to go for it,
// and what has to move so that more fits. It is pure: no clock, goroutine or I/O.
//
// # Terms
//
// A Node has processor time, memory, up to 16 devices of one model, and custom resources; it
// lies in failure domains (Config.Levels, as zone and rack). A Task makes a Request: amounts
// in thousandths (Milli), memory in bytes, and a number of devices with the share that it
// takes of each. A Policy scores the nodes that have room. A Group reserves bundles of
// resources by a Strategy; tasks are placed in them afterwards. A Gang is tasks that run
// together or not at all, with a Constraint for each of its parallel groups. A Mix is what
// tasks are expected: fragments are what is idle and of no use for it. A Preemption is a
// plan who goes; a Move is a step of a plan that merges what is free. Idle is a timer for each
// node without work. A tenant is who a Config.Meter (elastic/meter) charges.
//
// # Smallest use
//
//	cluster, err := sched.New(sched.Config{Nodes: nodes})
//	placement, err := cluster.Place(sched.Task{ID: "job", Request: sched.Request{CPU: 4000, Devices: 1}})
//	if errors.Is(err, sched.ErrNoRoom) {
//		reasons := cluster.Explain(task) // node by node
//	}
//	...
//	err = cluster.Release("job")
//
// # How it decides
//
// Among the nodes with room: one that holds the task's data (Near); then one of the model and
// vendor of the highest rank (Prefer); then the highest score of the policy; then the first
// in the order of domains and names, so that equals fill one rack after the other.
//
// Default scores by how much of a node becomes, by the placement, of no use for what is
// expected: its fragments as Weng et al. define them, two fifths of the devices that lose the
// processor time that goes with them, and a fifth of the devices of a model that some
// tasks depend on. The weights were chosen on other seeds of the openb traces than
// the ones in docs/scheduling.md. Without a mix it is learned: the best fit at first, then
// from what came (after 64 tasks, 128, 256 and so on).
//
// Preemption evicts the fewest tasks, of lower priority only; a gang that would have too few
// members left goes whole and counts as all of them. Between Begin and Complete the victims
// run, what is free is kept for the preemptor, and what victims give back is, too: nobody
// can slip in between, and no victim comes back before. Evict calls a function of yours for
// the victims that ask to be drained.
//
// # Concurrency
//
// A Cluster has one owner, which calls it from one goroutine at a time. PickDevices is
// called in between. Plans (Placement, Preemption, Move) are values.
//
// # Ordering and consistency
//
// The same calls give the same answers, on every machine: all decisions are made on
// integers, equals are told apart by name, Random draws from Config.Seed. The order in which
// nodes were added makes no difference. A call that fails has changed nothing.
//
// # Errors
//
// ErrNoRoom: not now. ErrInfeasible: not even if the cluster were empty. ErrExists and
// ErrUnknown name what they are about. All other errors say which field is out of which
// bounds. Place returns the first two bare, so that a refusal costs no allocation; Explain
// says why, node by node, with a Reason code.
//
// # Units and limits
//
// A decision takes a pass over one number per node, and up to two classes of requests
// catch up with what changed since; it allocates nothing. A request unlike the last 512 kinds
// costs a look at each node. MaxDevices, MaxModels, MaxCustom, MaxBundles, MaxGang bound
// what there may be. The number of victims is the least with up to a dozen preemptible
// tasks on a node, or where a bound proves it; beyond, and when the search of a plan has
// taken 16,384 steps, it is the best that was found. Packing bundles on one node is first fit
// by falling size.
//
// # References
//
// Weng, Yang, Yu, Wang, Tang, Yang, Zhang: Beware of Fragmentation: Scheduling GPU-Sharing
// Workloads with Fragmentation Gradient Descent, USENIX ATC 2023 (the metric, FGD, the
// experiment). Grandl et al.: Multi-resource packing for cluster schedulers, SIGCOMM 2014
// (dot product). Kuhn: The Hungarian method, 1955 (augmenting paths). Steele, Lea, Flood:
// Fast splittable pseudorandom number generators, OOPSLA 2014.
package sched
