// Package actor runs actors on nodes that talk to each other: the control plane of the
// project. It is built on the processes, names, monitors and supervisors of
// github.com/ergo-services/ergo and is the only package that imports it; ergo's network
// layer is replaced.
//
// # Terms
//
// A node ([Node]) is one participant of a cluster, usually one OS process. A process is
// one running [Actor] of a node, addressed by a [Ref]: its name and its node's. A cast
// is a message without an answer, a call one with. A mailbox holds the messages that an
// actor has not handled. To monitor a process is to get one [Down] when it ends; to link
// two is to let each end with the other's failure. A supervisor restarts its children.
//
// # Smallest use
//
//	n, err := actor.Start(ctx, actor.Config{Name: "a", Secret: secret})
//	defer n.Close()
//	err = n.Register("greeter.hello", Hello{})
//	ref, err := n.Spawn(ctx, "greeter", actor.ActorFunc(func(c *actor.Context, msg any) error {
//		c.Reply("hello " + msg.(Hello).Who)
//		return nil
//	}), actor.Options{})
//	answer, err := actor.Call[string](ctx, n, ref, Hello{Who: "world"})
//
// From another node, after its own Register and Connect(ctx, "host:port"), the last line
// is the same with ref = actor.Ref{Node: "a", Name: "greeter"}.
//
// # Messages
//
// Within a node a message is passed as it is, by reference if it is a pointer: the
// sender gives up what it points to. Between nodes it is a registered struct
// ([Node.Register]), encoded with msgpack, at most [MaxMessageBytes]. A control message
// should be idempotent; [WithRetry] makes a call safe to repeat where it is not.
//
// # Concurrency
//
// All methods of Node and [Request] are safe from any goroutine. An actor's methods run
// one at a time on its own goroutine; [Context] belongs to it.
//
// # Ordering and delivery
//
// Casts and calls of one goroutine to one process arrive in the order in which they were
// sent, also across nodes while the connection holds, and each at most once. Mailboxes
// are bounded: a sender waits for room until its context ends, or is told at once by
// TryCast. Between nodes each pair of connection and process has a window of 8,192 casts
// (less if the mailbox is smaller), on top of what local senders and calls may put there.
// A cast for which nil was returned is handled unless its receiver, or the connection,
// ends first; then [Observer].CastLost or PeerDown tells, and Down. Actors that cast to
// each other with both mailboxes full wait for each other until their contexts end.
//
// A monitor set before a message was sent by the same goroutine is in force when that
// message arrives. A Down comes after the messages that the process had sent before.
//
// # Failure
//
// When a connection breaks, calls over it fail at once with [ErrNodeDown]. A peer that
// is silent for [Config].Suspicion counts as down, so a stopped one fails calls after
// that time, plus at most one Heartbeat. A message to a known peer that is not connected
// dials it. A panic in an actor ends that actor only.
//
// # Errors
//
// Operations return an [*Error], which names the operation and its object and wraps one
// of the package's sentinels, a context error, or the actor's own. Sentinels, and errors
// given to [Node.RegisterError], hold under errors.Is on other nodes too. [Retryable]
// tells those that may pass.
//
// # Security
//
// A node listens on one address, on loopback unless told otherwise, and talks only to
// addresses that it was given, or that a peer which authenticated itself came from. Peers
// prove to each other that they know the cluster's secret (HMAC-SHA256 over both sides'
// fresh nonces, names and versions), or have certificates of a common authority (mutual
// TLS), or both; proofs are bound to the TLS session. Every certificate of the authority
// may claim any node name. What arrives is bounded before it is decoded: 128 handshakes
// of at most 2 s, frames of 66 KiB, memory in proportion to the bytes received.
//
// # Limits
//
// Names have at most 128 bytes; 1,024 message types; 16,384 peers; 4,096 children of a
// supervisor; 4,096 repeatable calls, or 16 MiB of their answers, remembered per caller.
// Ergo's own sends, links by pid, remote spawn and proxies do not cross nodes: they
// return [ErrUnsupported].
//
// # References
//
// Hewitt, Bishop, Steiger: A Universal Modular Actor Formalism for Artificial
// Intelligence (IJCAI 1973). Armstrong: Making reliable distributed systems in the
// presence of software errors (2003), chapters 3 to 5, for links, monitors and
// supervisors. Kung, Morris: Credit-Based Flow Control for ATM Networks (IEEE Network
// 9(2), 1995). RFC 6298 for the smoothed round-trip time, RFC 5705 for the TLS exporter.
package actor
