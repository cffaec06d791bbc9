// Package elastic changes the number of parameter servers and the places of the
// shards while training goes on, as measured load or a caller asks.
//
// # Terms
//
// A Policy is a pure function from a Snapshot (what was measured, who owns what,
// what is under way) and a State (dwell times and cooldown) to a Plan: a Decision
// about the number of servers and the Operators to start now. An operator adds,
// drains, keeps or removes a server, or moves a shard; Status says where it is in its
// life. A Controller is the actor that samples a Cluster, plans, carries the
// operators out, and plans again. A Provider starts and stops the places on which
// servers run: InProcess in this process, Processes as processes of this host.
//
// # Smallest use
//
//	provider := elastic.NewInProcess(func(ctx context.Context, id shard.ServerID) (io.Closer, error) {
//		return ps.StartServer(ctx, ps.ServerConfig{Node: node, ID: id, Coordinator: coordinator.Ref()})
//	})
//	admin, err := ps.NewAdmin(node, coordinator.Ref())
//	...
//	cluster := elastic.NewCluster(admin, provider)
//	controller, err := elastic.Start(ctx, node, elastic.Config{Cluster: cluster})
//	...
//	err = controller.Scale(ctx, 4) // by hand; without it the load decides
//
// A rule of your own sets Policy.Manual and calls Scale with what it wants.
//
// # Several hosts
//
// With ps.StandBy a job's coordinator may be on any of several hosts. Each runs this, and
// a controller only while it leads. It asks the coordinator beside it, so that one that
// was deposed changes nothing:
//
//	for ctx.Err() == nil {
//		coordinator, err := ps.StandBy(ctx, config)
//		...
//		admin, err := ps.NewAdmin(node, coordinator.Ref())
//		controller, err := elastic.Start(ctx, node, elastic.Config{Cluster: elastic.NewCluster(admin, provider)})
//		...
//		<-coordinator.Done()
//		err = errors.Join(controller.Close(), coordinator.Close())
//	}
//
// The next controller waits until the servers have come back to its coordinator, and plans
// anew: moves are finished or undone by the coordinator, a server that was being added
// counts when it joins, one that was being drained or removed is taken up again. Servers of
// Processes end with the process that started them.
//
// # The cluster
//
// A Scheduler is the actor that owns a sched.Cluster (a SchedulerClient asks it from another
// node; HostsOf makes nodes for it of the devices of a host): it says which node and which
// devices a task gets, a parameter server among them, evicts others for it after they were
// drained, and moves what stands in the way of larger tasks. Package sched decides, package trace
// replays traces.
//
//	scheduler, err := elastic.StartScheduler(ctx, node, elastic.SchedulerConfig{Cluster: sched.Config{Nodes: nodes}})
//	...
//	placement, err := scheduler.Place(ctx, task)
//	if errors.Is(err, sched.ErrNoRoom) {
//		placement, err = scheduler.Preempt(ctx, task)
//	}
//
// Jobs that may run on any of several clusters are given to a Home, which gives each to one Site at
// a time; package federation says why no two run it at once. Home is elected by the coordination store,
// where it keeps the jobs.
//
//	home, err := elastic.StartHome(ctx, node, elastic.HomeConfig{Store: kv}) // on any node; again after home.Done()
//
//	site, err := elastic.StartSite(node, elastic.SiteConfig{ // beside the scheduler of each cluster
//		Name: "east", Incarnation: incarnation, Homes: homes, Scheduler: scheduler,
//		Run: func(ctx context.Context, job federation.Start, placements []sched.Placement) error { ... },
//	})
//
//	client, err := elastic.NewFederationClient(node, homes...)
//	err = client.Submit(ctx, federation.Job{Gang: gang, Prefer: []string{"east"}})
//
// # How it decides
//
// More servers if any signal is above its upper threshold for Dwell: gradient latency
// 50 ms, utilization 85 %, synchronization bandwidth 80 Gbps. Fewer if all known
// signals are below their lower ones (10 ms, 40 %, 20 Gbps) for DwellDown. No change
// during Cooldown, none while the effect of work in flight is not measured yet, none
// whose predicted effect would ask for its opposite, none that leaves Min and Max or
// gives more servers than shards. Measurements that are not (negative, NaN, infinite,
// a fraction over 1) are dropped, signal by signal. Whenever shards and servers are
// out of balance, shard.Rebalance says what moves. Every decision has a Reason code
// and its inputs; one that changes the number of servers is logged in the form
//
//	[ElasticController] Scaled PS: 8→12 Trigger: grad_latency=63ms > threshold=50ms
//
// A server that is marked as draining is on its way out, whoever marked it: its
// shards move away, then it is removed and stopped, unless growth keeps it. One that
// is down and owns nothing is removed too.
//
// # Concurrency
//
// A Policy is a value and may be shared. The methods of Controller, Scheduler, Home, Site, of the
// clients, of InProcess and Processes may be called from any goroutine. At most MaxMoves moves run at once,
// each operator on a goroutine of its own with a deadline.
//
// # Ordering and consistency
//
// A plan is made from a sample that was begun after the end of every operator that
// counts as finished; the others count as in flight, and their moves as done. No
// shard is moved by two operators at once. What a Home decides is in the store before any
// site or client is told.
//
// # Errors
//
// An operator that fails, panics or runs out of time leaves the job serving, is
// logged with its step and cause, and is left alone for Backoff; the others go on.
// Scale fails with ErrBounds or ErrSuperseded, providers with ErrServerExists,
// ErrUnknownServer or ErrProviderClosed. A Home that is none any more answers ErrNotHome;
// sites and clients ask the others then.
//
// # Limits
//
// The history holds Config.MaxDecisions decisions, a decision lists at most 64
// rejections, Processes runs at most ProcessConfig.MaxProcesses processes and cuts
// lines of output at 16 KiB. A job of a federation has at most 32 KiB as JSON and an ID of
// 128 bytes; a site or a client knows at most 64 Homes. Shards of a server that is down
// stay where they are: that is failover, not a move. Prediction knows the queue of one
// server, not the limits of the workers: where these are the bottleneck it errs towards
// keeping servers.
//
// # References
//
// Latency under load: Kleinrock, Queueing Systems 1 (1975), section 3.2. Operators as
// values with a table of transitions: the placement driver of TiKV. The dwell time of
// shrinking: the stabilization window of the Kubernetes horizontal pod autoscaler.
package elastic
