package elastic

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

const ms = time.Millisecond

func TestPolicyValidate(t *testing.T) {
	require.NoError(t, Policy{}.Validate())
	err := Policy{
		Thresholds: Thresholds{LatencyUp: 5 * ms, UtilizationUp: 1.5, BandwidthUp: math.Inf(1)},
		Dwell:      -1, GrowBy: 2, Headroom: math.NaN(), Min: 4, Max: 3, MaxMoves: -1, ServerPrefix: string(make([]byte, 300)),
	}.Validate()
	for _, want := range []string{
		"grad_latency: down 1e+07, up 5e+06", "UtilizationUp 1.5", "sync_bandwidth", "Dwell -1ns", "GrowBy 2",
		"Headroom NaN", "Min 4, Max 3", "MaxMoves -1", "ServerPrefix of 300 bytes",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestDefaultThresholdsAreThoseOfTheArticle(t *testing.T) {
	require.Equal(t, Thresholds{
		LatencyUp: 50 * ms, LatencyDown: 10 * ms, UtilizationUp: 0.85, UtilizationDown: 0.40,
		BandwidthUp: 80e9, BandwidthDown: 20e9,
	}, Thresholds{}.withDefaults())
}

// TestPlanDecides gives one snapshot twice, DwellDown apart, so that both dwell
// times are over, and looks at the second decision.
func TestPlanDecides(t *testing.T) {
	unknown := math.NaN()
	cases := []struct {
		name          string
		servers       int
		latency       time.Duration
		util, gbps    float64
		policy        Policy
		to            int
		reason        Reason
		line          string
		targetServers int
	}{
		{
			name: "latency", servers: 8, latency: 63 * ms, util: 0.5, gbps: 40, to: 12, reason: Load,
			line: "[ElasticController] Scaled PS: 8→12 Trigger: grad_latency=63ms > threshold=50ms",
		},
		{
			name: "use", servers: 1, latency: 5 * ms, util: 0.92, gbps: 1, to: 2, reason: Load,
			line: "[ElasticController] Scaled PS: 1→2 Trigger: gpu_util=92% > threshold=85%",
		},
		{
			name: "bandwidth", servers: 2, latency: 20 * ms, util: unknown, gbps: 85.25, to: 3, reason: Load,
			line: "[ElasticController] Scaled PS: 2→3 Trigger: sync_bandwidth=85.25Gbps > threshold=80Gbps",
		},
		{
			name: "two", servers: 2, latency: 63 * ms, util: 0.9, gbps: 1, to: 3, reason: Load,
			line: "[ElasticController] Scaled PS: 2→3 Trigger: grad_latency=63ms > threshold=50ms, gpu_util=90% > threshold=85%",
		},
		{name: "at the threshold is not above", servers: 2, latency: 50 * ms, util: 0.85, gbps: 80, to: 2, reason: Steady},
		{name: "at the lower threshold is not below", servers: 2, latency: 10 * ms, util: 0.1, gbps: 1, to: 2, reason: Steady},
		{
			name: "all below", servers: 12, latency: 4 * ms, util: 0.2, gbps: 1, to: 8, reason: Load,
			line: "[ElasticController] Scaled PS: 12→8 Trigger: grad_latency=4ms < threshold=10ms, gpu_util=20% < threshold=40%, sync_bandwidth=1Gbps < threshold=20Gbps",
		},
		{name: "one not below", servers: 12, latency: 4 * ms, util: 0.41, gbps: 1, to: 12, reason: Steady},
		{
			name: "unknown does not hold back", servers: 3, latency: 0, util: 0.1, gbps: unknown, to: 2, reason: Load,
			line: "[ElasticController] Scaled PS: 3→2 Trigger: gpu_util=10% < threshold=40%",
		},
		{name: "nothing known", servers: 3, latency: -1, util: 1.01, gbps: math.Inf(1), to: 3, reason: NoSignal},
		{name: "sentinel latency", servers: 3, latency: math.MaxInt64, util: 0.5, gbps: 30, to: 3, reason: Steady},
		{name: "sentinel bandwidth", servers: 3, latency: 20 * ms, util: 0.5, gbps: 1e12, to: 3, reason: Steady},
		{
			name: "minimum", servers: 1, latency: ms, util: 0.01, to: 1, reason: AtMin,
			line: "[ElasticController] Kept PS: 1 Reason: at_min Trigger: grad_latency=1ms < threshold=10ms, gpu_util=1% < threshold=40%, sync_bandwidth=0bps < threshold=20Gbps",
		},
		{name: "own minimum", servers: 6, latency: ms, util: 0.01, policy: Policy{Min: 5}, to: 5, reason: Load},
		{name: "maximum", servers: 8, latency: 63 * ms, policy: Policy{Max: 8}, to: 8, reason: AtMax},
		{name: "own maximum", servers: 8, latency: 63 * ms, policy: Policy{Max: 10}, to: 10, reason: Load},
		{name: "as many servers as shards", servers: 24, latency: 63 * ms, to: 24, reason: AtMax},
		{name: "not more servers than shards", servers: 20, latency: 63 * ms, to: 24, reason: Load},
		{
			name: "below the minimum", servers: 2, latency: ms, policy: Policy{Min: 3}, to: 3, reason: BelowMin,
			line: "[ElasticController] Scaled PS: 2→3 Trigger: servers=2 < min=3",
		},
		{
			name: "above the maximum", servers: 5, latency: 63 * ms, policy: Policy{Max: 3}, to: 3, reason: AboveMax,
			line: "[ElasticController] Scaled PS: 5→3 Trigger: servers=5 > max=3",
		},
		{
			name: "more on request", servers: 2, latency: ms, targetServers: 5, to: 5, reason: Requested,
			line: "[ElasticController] Scaled PS: 2→5 Trigger: servers=2 < requested=5",
		},
		{
			name: "fewer on request", servers: 5, latency: 63 * ms, targetServers: 2, to: 2, reason: Requested,
			line: "[ElasticController] Scaled PS: 5→2 Trigger: servers=5 > requested=2",
		},
		{name: "a request is kept within bounds", servers: 5, targetServers: 50, policy: Policy{Max: 6}, to: 6, reason: Requested},
		{name: "a request holds the number", servers: 5, latency: 63 * ms, targetServers: 5, to: 5, reason: Steady},
		{
			name: "fewer would be too few", servers: 2, latency: ms, util: 0.39, gbps: 1, to: 2, reason: WouldReverse,
			policy: Policy{Thresholds: Thresholds{UtilizationUp: 0.7}},
		},
		{
			name: "fewer, but not as many as the step", servers: 9, latency: ms, util: 0.39, gbps: 1, to: 7, reason: Load,
			policy: Policy{Thresholds: Thresholds{UtilizationUp: 0.6}},
		},
		{
			name: "more would be too many", servers: 1, latency: ms, util: 0.5, gbps: 1, to: 1, reason: WouldReverse,
			policy: Policy{Thresholds: Thresholds{UtilizationUp: 0.45, UtilizationDown: 0.4}},
		},
		{
			name: "more, but not as many as the step", servers: 8, latency: ms, util: 0.56, gbps: 1, to: 11, reason: Load,
			policy: Policy{Thresholds: Thresholds{UtilizationUp: 0.5, UtilizationDown: 0.4}},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.policy, 24, c.servers)
			require.NoError(t, w.policy.Validate())
			w.target = c.targetServers
			w.measured(c.latency, c.util, c.gbps*1e9/8)
			d := w.tick(t, 0).Decision
			if !d.Scaled() { // a matter of load: dwell first
				d = w.tick(t, 5*time.Minute).Decision
			}
			require.Equal(t, c.servers, d.From)
			require.Equal(t, c.to, d.To, "%v", d)
			require.Equal(t, c.reason, d.Reason, "%v", d)
			if c.line != "" {
				require.Equal(t, c.line, d.String())
			}
		})
	}
}

func TestDwellNeedsAnUnbrokenCondition(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 2)
	for s := range 60 {
		w.measured(60*ms, 0.5, 0)
		if s%5 == 4 { // never five seconds without a break
			w.measured(20*ms, 0.5, 0)
		}
		require.False(t, w.tick(t, time.Duration(s)*time.Second).Decision.Scaled(), "second %d", s)
	}
}

func TestClockThatGoesBackStartsDwellAgain(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 2)
	w.measured(60*ms, 0.5, 0)
	w.tick(t, time.Hour)
	require.Equal(t, Dwelling, w.tick(t, time.Second).Decision.Reason)
	require.True(t, w.tick(t, 6*time.Second).Decision.Scaled())
}

func TestCooldownStartsWhenTheChangeIsDone(t *testing.T) {
	w := newWorld(t, Policy{Cooldown: 20 * time.Second}, 24, 2)
	w.delay = func(o Operator) time.Duration { return 3 * time.Second }
	w.measured(60*ms, 0.5, 0)
	var decided []time.Duration
	var quiet time.Duration // end of the last operator
	for s := range 120 {
		at := time.Duration(s) * time.Second
		w.measured(60*ms, 0.5, 0)
		busy := len(w.inFlight) > 0
		d := w.tick(t, at).Decision
		if busy {
			quiet = at
		}
		if d.Scaled() {
			decided = append(decided, at)
			if len(decided) > 1 {
				require.GreaterOrEqual(t, at-quiet, 20*time.Second)
			}
		}
	}
	require.Equal(t, 5*time.Second, decided[0])
	require.Greater(t, len(decided), 2)
}

func TestStepResponse(t *testing.T) {
	const period = 500 * ms
	w := newWorld(t, Policy{Dwell: 3 * time.Second}, 24, 1)
	for i := range 200 {
		at := time.Duration(i) * period
		w.load(0.5, 10*ms)
		if i >= 100 {
			w.load(1.5, 10*ms)
		}
		if d := w.tick(t, at).Decision; d.Scaled() {
			require.LessOrEqual(t, at, 100*period+3*time.Second+3*period)
			require.GreaterOrEqual(t, at, 100*period+3*time.Second)
			return
		}
	}
	require.Fail(t, "no answer to the step")
}

func TestDrainThenRemoveThenNothingLeft(t *testing.T) {
	w := newWorld(t, Policy{MaxMoves: 2}, 24, 4)
	w.target = 2
	removed := 0
	for s := range 40 {
		plan := w.tick(t, time.Duration(s)*time.Second)
		moves := 0
		for _, o := range plan.Operators {
			switch o.Kind {
			case MoveShard:
				moves++
				require.Contains(t, []shard.ServerID{"ps-0", "ps-1"}, o.Move.To)
				require.NotEmpty(t, o.Reason)
				require.EqualValues(t, 1<<20, o.Influence.Bytes)
			case RemoveServer:
				removed++
			case DrainServer:
				require.Contains(t, []shard.ServerID{"ps-2", "ps-3"}, o.Server, "equal loads: the last names leave")
				require.Equal(t, Influence{Servers: -1, Bytes: 6 << 20}, o.Influence)
			}
		}
		require.LessOrEqual(t, moves, 2)
	}
	require.Equal(t, 2, removed)
	require.Len(t, w.servers, 2)
	require.Len(t, w.owners.Of("ps-0"), 12)
}

func TestDrainingServerIsKeptBeforeANewOneStarts(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 3)
	w.servers[1].Draining = true
	w.target = 4
	plan := w.tick(t, 0)
	var kinds []Kind
	for _, o := range plan.Operators {
		if o.Kind != MoveShard {
			kinds = append(kinds, o.Kind)
		}
	}
	require.Equal(t, []Kind{KeepServer, AddServer}, kinds)
	require.Equal(t, shard.ServerID("ps-3"), plan.Operators[len(plan.Operators)-1].Server, "names in use are skipped")
}

func TestFailedWorkIsLeftAloneForAWhile(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 1)
	w.target = 2
	w.fail = func(o Operator) bool {
		return o.Kind == MoveShard && o.Move.Shard == 0 || o.Kind == AddServer && w.at < 15*time.Second
	}
	starts, tries := 0, 0
	for s := range 60 {
		plan := w.tick(t, time.Duration(s)*time.Second)
		for _, o := range plan.Operators {
			if o.Kind == AddServer {
				starts++
			}
			if o.Kind == MoveShard && o.Move.Shard == 0 {
				tries++
			}
		}
	}
	require.Equal(t, 3, starts, "at 0, 11 and 22 s")
	require.LessOrEqual(t, tries, 4)
	require.Len(t, w.owners.Of("ps-3"), 11, "all but the shard that was moving last, which waits")
	require.Len(t, w.owners.Of("ps-0"), 13)
}

func TestFailedDrainAndKeepAreLeftAloneToo(t *testing.T) {
	for _, kind := range []Kind{DrainServer, KeepServer} {
		w := newWorld(t, Policy{}, 24, 3)
		w.fail = func(o Operator) bool { return o.Kind == kind }
		w.target = 2
		if kind == KeepServer {
			w.servers[1].Draining = true
			w.target = 3
		}
		tries := 0
		for i := range 100 { // ten seconds
			for _, o := range w.tick(t, time.Duration(i)*100*ms).Operators {
				if o.Kind == kind {
					tries++
				}
			}
		}
		require.Equal(t, 1, tries, "%v", kind)
	}
}

func TestManualPolicyIgnoresTheLoad(t *testing.T) {
	w := newWorld(t, Policy{Manual: true, Min: 2}, 24, 4)
	for s := range 400 {
		w.measured(ms, 0.01, 0)
		if s > 200 {
			w.measured(time.Second, 1, 0)
		}
		require.False(t, w.tick(t, time.Duration(s)*time.Second).Decision.Scaled())
	}
	w.target = 3
	require.Equal(t, 3, w.tick(t, time.Hour).Decision.To)
}

func TestDownServerIsReplacedAndItsShardsAreLeftAlone(t *testing.T) {
	w := newWorld(t, Policy{Min: 3}, 24, 3)
	w.servers[0].Up = false
	for s := range 30 {
		for _, o := range w.tick(t, time.Duration(s)*time.Second).Operators {
			require.NotEqual(t, shard.ServerID("ps-0"), o.Move.From, "there is nothing to copy from")
			require.NotEqual(t, shard.ServerID("ps-0"), o.Move.To)
		}
	}
	require.Equal(t, 3, w.count())
	require.Len(t, w.owners.Of("ps-0"), 8)
	require.Len(t, w.servers, 4)
	w.servers[3].Up = false // and this one is empty by now
	for _, id := range w.owners.Of(w.servers[3].ID) {
		m, err := w.owners.WithOwner(id, "ps-1")
		require.NoError(t, err)
		w.owners = m
	}
	for s := range 10 {
		w.tick(t, time.Duration(30+s)*time.Second)
	}
	require.Equal(t, 3, w.count())
	require.Len(t, w.servers, 4, "a server that is down and has nothing is removed")
}

// A job that stands still because its shards are gone is not an idle job.
func TestOwnerThatIsDownStopsScalingByLoad(t *testing.T) {
	w := newWorld(t, Policy{Dwell: time.Second, DwellDown: time.Second, Cooldown: time.Second}, 24, 3)
	w.measured(0, 0, 0)
	w.servers[0].Up = false
	for s := range 30 {
		d := w.tick(t, time.Duration(s)*time.Second).Decision
		require.Equal(t, OwnerDown, d.Reason)
		require.False(t, d.Scaled())
	}
	require.Equal(t, "owner_down", OwnerDown.String())
}

func TestNoRoomKeepsTheServers(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 3)
	for i := range w.servers {
		w.servers[i].CapacityBytes = 9 << 20
	}
	w.target = 2
	d := w.tick(t, 0).Decision
	require.False(t, d.Scaled())
	require.Equal(t, NoRoom, d.Reason)
	require.Contains(t, d.Rejected[0].Detail, "fits none of 2 servers")
}

func TestMovesInFlightCountAsDone(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 2)
	for _, id := range w.owners.Of("ps-1")[:1] {
		m, err := w.owners.WithOwner(id, "ps-0")
		require.NoError(t, err)
		w.owners = m
	}
	last := w.owners.Of("ps-0")[12]
	w.inFlight = []Operator{{ID: 1, Kind: MoveShard, Status: Started, Move: shard.Move{Shard: last, From: "ps-0", To: "ps-1"}}}
	w.delay = func(Operator) time.Duration { return time.Hour }
	require.Empty(t, w.tick(t, 0).Operators)
	w.inFlight = nil
	require.Len(t, w.tick(t, time.Second).Operators, 1, "without it one shard has to move")
}

// A server may be up before the operator that adds it has ended, and a start that fails is
// undone: it must not have shards by then.
func TestStartingServerGetsNoShards(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 2)
	w.servers = append(w.servers, ServerSample{ID: "ps-2", Up: true})
	w.inFlight = []Operator{{ID: 1, Kind: AddServer, Server: "ps-2", Status: Started}}
	w.delay = func(Operator) time.Duration { return time.Hour }
	plan := w.tick(t, 0)
	require.Empty(t, plan.Operators)
	require.Equal(t, WorkInFlight, plan.Decision.Rejected[0].Reason)
	w.inFlight = nil
	require.NotEmpty(t, w.tick(t, time.Second).Operators, "when it has started")
}

// A server that could not be removed is still there: the decision says what is left to do.
func TestFailedRemovalIsRejectedForAWhile(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 3)
	w.fail = func(o Operator) bool { return o.Kind == RemoveServer && w.at < 30*time.Second }
	w.target = 2
	waits := 0
	for s := range 60 {
		for _, r := range w.tick(t, time.Duration(s)*time.Second).Decision.Rejected {
			if r.Reason == BackingOff {
				require.Equal(t, "remove_server ps-2", r.Subject)
				waits++
			}
		}
	}
	require.Greater(t, waits, 10)
	require.Len(t, w.servers, 2)
}

func TestContradictorySnapshotPlansNothing(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 2)
	w.owners.Assignments = w.owners.Assignments[:20]
	w.target = 5
	plan := w.tick(t, 0)
	require.Empty(t, plan.Operators)
	require.Equal(t, InvalidSnapshot, plan.Decision.Reason)
	plan, _ = Policy{}.Plan(Snapshot{}, State{})
	require.Empty(t, plan.Operators)
	require.Equal(t, NoShards, plan.Decision.Reason)
}

func TestPlanLeavesItsArgumentsAlone(t *testing.T) {
	w := newWorld(t, Policy{}, 24, 2)
	w.servers[0], w.servers[1] = w.servers[1], w.servers[0]
	w.target = 3
	s := Snapshot{Servers: w.servers, Shards: w.shards, Map: w.owners.Clone(), Target: 3, Finished: []Operator{{Kind: AddServer, Status: Failed}}}
	first, st := w.policy.Plan(s, State{})
	again, st2 := w.policy.Plan(s, State{})
	require.Equal(t, first, again)
	require.Equal(t, st, st2)
	require.Equal(t, w.owners, s.Map)
	require.Equal(t, shard.ServerID("ps-1"), w.servers[0].ID)
}

func TestOperatorTransitions(t *testing.T) {
	legal := map[[2]Status]bool{
		{Created, Started}: true, {Created, Cancelled}: true, {Started, Succeeded}: true,
		{Started, Failed}: true, {Started, Cancelled}: true, {Started, TimedOut}: true,
	}
	for from := Created; from <= TimedOut+1; from++ {
		for to := Created; to <= TimedOut+1; to++ {
			o, err := Operator{Kind: AddServer, Server: "ps-1", Status: from}.Advance(to)
			if legal[[2]Status{from, to}] {
				require.NoError(t, err)
				require.Equal(t, to, o.Status)
				continue
			}
			require.ErrorIs(t, err, ErrTransition)
			require.ErrorContains(t, err, "add_server ps-1")
			require.Equal(t, from, o.Status)
		}
		require.Equal(t, from >= Succeeded, from.Final())
	}
}
