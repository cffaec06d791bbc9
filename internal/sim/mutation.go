package sim

// Mutants are deliberate faults in the shells around the protocol, off by default. Each
// must be found: a simulator that misses them proves nothing about the rest.
type Mutants struct {
	SkipWindow        bool // a push is applied whether it was seen or not
	AckBeforeConfirm  bool // a push is acknowledged before the followers have it
	DuplicateAtOnce   bool // a repeated push is acknowledged before the first one is confirmed
	ReadUnconfirmed   bool // a pull shows what no follower has yet
	NoLease           bool // pulls are answered without a lease from each follower
	AckWithoutLease   bool // a push is acknowledged without a lease, if it is confirmed
	NoLeaseWait       bool // a promoted follower answers while the former owner may have a lease
	FollowWhileMute   bool // a promoted follower passes the shard on while the former owner may have a lease
	NoJoin            bool // acknowledgements do not wait for a follower that joins
	NoForward         bool // pushes to blocks already sent are not forwarded
	NoWindowsInState  bool // the state frame comes without the push windows
	NoDrain           bool // a freeze returns before the target has everything
	AnyChange         bool // a follower goes on with an owner whose state is another
	AnyLineage        bool // and with one that has as many changes, but other ones
	AnyStream         bool // a follower takes frames of a stream that was replaced
	KeepIgnoresSet    bool // an owner takes an older set of followers for the newer
	KeepBeforeDrop    bool // the owner hears of a drop before the store has it
	PromoteInPlace    bool // a promotion does not begin a new attempt
	FreshRevision     bool // a move writes under a revision that was read for something else
	RefillOnSilence   bool // a silent owner without followers is taken for dead
	UnknownIsDone     bool // a write whose answer was lost is taken for done
	ReportIsProof     bool // an old report of an absent copy is taken for a loss
	LaterSet          bool // an order of an attempt that is over carries the followers of a later record
	RestoreAlways     bool // a move is undone after its commit although there are followers
	PromoteAbsent     bool // a follower is promoted without knowing that it has a copy
	RetainByFollowers bool // a follower fences workers when a coordinator says so, not when its owner does
	RetainAlone       bool // the owner fences workers and its followers do not
	RetainMissesOne   bool // a worker that is alive is taken for gone
	DropUnasked       bool // a follower that has joined a moment ago is dropped without asking the owner
	DropOrphans       bool // followers are dropped while their owner is down
	EarlierRunReturns bool // an earlier run of a server is taken in while the later one seems to be down
	DenyAndForget     bool // a server that has said that it has nothing of a shard fills it for an order from before
	LaterRunIsProof   bool // what the later run of a server does or says counts for the earlier ones
}
