package sched_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// fragment is the formula as it stands in the paper, in floating point: the oracle of the
// one that decides.
func fragment(mix sched.Mix, cpu sched.Milli, model string, free []sched.Milli) float64 {
	all, sum, idle := 0.0, 0.0, sched.Milli(0)
	for _, f := range free {
		idle += f
	}
	for _, e := range mix {
		all += float64(e.Count)
		lost, count := sched.Milli(0), 0
		for _, f := range free {
			if f >= e.Share {
				count++
			} else {
				lost += f
			}
		}
		if e.Devices == 0 || cpu < e.CPU || count < e.Devices || len(e.Models) > 0 && !slices.Contains(e.Models, model) {
			lost = idle
		}
		sum += float64(e.Count) * float64(lost)
	}
	return sum / all / 1000
}

func TestFragmentationIsThatOfThePaper(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var mix sched.Mix
		for range 1 + rng.IntN(6) {
			e := sched.Expected{Request: sched.Request{CPU: sched.Milli(rng.IntN(9000))}, Count: 1000}
			if e.Devices = rng.IntN(3); e.Devices > 0 {
				e.Share = sched.Whole
			}
			if e.Devices == 1 && rng.IntN(2) == 0 {
				e.Share = sched.Milli(1 + rng.IntN(999))
			}
			if e.Devices > 0 && rng.IntN(4) == 0 {
				e.Models = []string{"H"}
			}
			mix = append(mix, e)
		}
		c := newCluster(t, sched.Config{Nodes: boxes(4), Mix: mix, Policy: sched.Random, Seed: seed})
		cpu, free := sched.Milli(40_000), []sched.Milli{1000, 1000, 1000, 1000}
		for i := range 8 {
			task := sched.Task{ID: fmt.Sprint(i), Request: sched.Request{CPU: sched.Milli(rng.IntN(8000)), Devices: 1, Share: sched.Milli(1 + rng.IntN(500))}}
			p, err := c.Place(task)
			if err != nil {
				continue
			}
			cpu -= task.CPU
			free[p.Devices.List()[0]] -= task.Share
			ofAll, ofIdle := c.Fragmentation()
			popular := int(math.Ceil(float64(len(mix)) * 0.95))
			want := fragment(mix[:popular], cpu, "G", free)
			require.InDelta(t, want/4, ofAll, 1e-4, "seed %d", seed)
			require.InDelta(t, want/(float64(free[0]+free[1]+free[2]+free[3])/1000), ofIdle, 1e-3, "seed %d", seed)
		}
	}
}

func TestOrderOfNodesDoesNotMatter(t *testing.T) {
	nodes := boxes(4, 2, 8, 1, 0, 4, 2, 8)
	for _, policy := range sched.Policies() {
		var want []sched.Placement
		for round := range 3 {
			rng := rand.New(rand.NewPCG(uint64(round), 5))
			rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
			c := newCluster(t, sched.Config{Nodes: nodes[:5], Policy: policy})
			require.NoError(t, c.AddNodes(nodes[5:]...))
			rng = rand.New(rand.NewPCG(9, 9))
			var got []sched.Placement
			for i := range 100 {
				task := sched.Task{ID: fmt.Sprint(i), Request: sched.Request{CPU: sched.Milli(rng.IntN(4000)), Devices: rng.IntN(3)}}
				if task.Devices == 1 {
					task.Share = sched.Milli(rng.IntN(1000) + 1)
				}
				p, err := c.Place(task)
				if err != nil {
					p.Task = err.Error()
				}
				got = append(got, p)
			}
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "%v", policy)
		}
	}
}

func TestModelsVendorsAndPreferences(t *testing.T) {
	nodes := []sched.Node{
		{Name: "a", CPU: 8000, Devices: 1, Model: "A100", Vendor: "nvidia"},
		{Name: "b", CPU: 8000, Devices: 1, Model: "910B", Vendor: "ascend"},
		{Name: "c", CPU: 8000, Devices: 1, Model: "S4000", Vendor: "mthreads"},
		{Name: "d", CPU: 8000},
		{Name: "e", CPU: 8000, Devices: 1, Model: "T4", Vendor: "nvidia"},
	}
	for i := range nodes {
		nodes[i].MemoryBytes = 1 << 40
	}
	at := func(change func(*sched.Task)) (string, error) {
		c := newCluster(t, sched.Config{Nodes: nodes})
		task := whole("t", 1)
		change(&task)
		p, err := c.Decide(task)
		return p.Node, err
	}
	for want, change := range map[string]func(*sched.Task){
		"a": func(*sched.Task) {},
		"b": func(t *sched.Task) { t.Vendors = []string{"ascend"} },
		"c": func(t *sched.Task) { t.Prefer = map[string]int{"mthreads": 2, "ascend": 1} },
		"d": func(t *sched.Task) { t.Devices = 0 },
		"e": func(t *sched.Task) { t.Near = []string{"e", "nowhere"}; t.Prefer = map[string]int{"ascend": 1} },
	} {
		got, err := at(change)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := at(func(t *sched.Task) { t.Models, t.Vendors = []string{"T4", "910B"}, []string{"nvidia"} })
	require.NoError(t, err)
	require.Equal(t, "e", got)
	_, err = at(func(t *sched.Task) { t.Models = []string{"H800"} })
	require.ErrorIs(t, err, sched.ErrInfeasible)
	_, err = at(func(t *sched.Task) { t.Custom = map[string]sched.Milli{"quantum": 1} })
	require.ErrorIs(t, err, sched.ErrInfeasible)
	inference, err := sched.Like(sched.Inference, "i")
	require.NoError(t, err)
	c := newCluster(t, sched.Config{Nodes: nodes})
	p, err := c.Decide(inference)
	require.NoError(t, err)
	require.Equal(t, "e", p.Node)
	_, err = sched.Like(9, "x")
	require.Error(t, err)
}

func TestExplain(t *testing.T) {
	nodes := boxes(2, 2, 2, 2, 2, 2, 1, 2)
	nodes[0].Model, nodes[1].Vendor = "H", "other"
	nodes[3].MemoryBytes = 100
	c := newCluster(t, sched.Config{Nodes: nodes})
	fill := func(node string, r sched.Request) {
		place(t, c, sched.Task{ID: node, Near: []string{node}, Request: r})
	}
	require.NoError(t, c.Cordon("n02", true))
	fill("n03", sched.Request{MemoryBytes: 60})
	fill("n04", sched.Request{CPU: 19_000})
	fill("n05", sched.Request{Devices: 2, Share: 400})
	fill("n07", sched.Request{Devices: 2, Share: 600})
	task := sched.Task{ID: "t", Request: sched.Request{
		CPU: 2000, MemoryBytes: 50, Devices: 2, Share: 500, Models: []string{"G"}, Vendors: []string{""},
	}}
	var got []string
	for _, r := range c.Explain(task) {
		got = append(got, r.String())
	}
	require.Equal(t, []string{
		"n00: wrong-model: H",
		"n01: wrong-vendor: other",
		"n02: cordoned",
		"n03: no-memory: memory 50 of 40 bytes",
		"n04: no-cpu: CPU 2 of 1 cores",
		"n06: too-small: devices 1 of 1",
		"n07: no-devices: devices 1 of 0.8",
	}, got)
	fill("n05 again", sched.Request{}) // somewhere
	require.NoError(t, c.Release("n07"))
	place(t, c, sched.Task{ID: "half", Near: []string{"n07"}, Request: sched.Request{Devices: 1, Share: 700}})
	place(t, c, sched.Task{ID: "rest", Near: []string{"n07"}, Request: sched.Request{Devices: 1, Share: 200}})
	for _, r := range c.Explain(task) {
		if r.Node == "n07" {
			require.Equal(t, sched.Fragmented, r.Reason)
		}
	}
	require.NoError(t, c.Cordon("n02", false))
	require.NotContains(t, fmt.Sprint(c.Explain(task)), "cordoned")
	require.ErrorIs(t, c.Cordon("n99", true), sched.ErrUnknown)
}

func TestFaultyClusters(t *testing.T) {
	good := boxes(1)[0]
	for want, config := range map[string]sched.Config{
		"Policy 99":         {Policy: 99},
		"Levels[0]":         {Levels: []string{"node"}},
		"Levels[1]":         {Levels: []string{"rack", "rack"}},
		"Name is empty":     {Nodes: []sched.Node{{}}},
		"exists already":    {Nodes: []sched.Node{good, good}},
		"Devices 17":        {Nodes: []sched.Node{{Name: "x", Devices: 17}}},
		"Domains":           {Nodes: []sched.Node{{Name: "x", Domains: []string{"r"}}}},
		`Custom["FPGA"] -1`: {Nodes: []sched.Node{{Name: "x", Custom: map[string]sched.Milli{"FPGA": -1}}}},
		"Mix[0].Count 0":    {Mix: sched.Mix{{}}},
		"Mix[0]: CPU ":      {Mix: sched.Mix{{Count: 1, Request: sched.Request{CPU: -1}}}},
	} {
		_, err := sched.New(config)
		require.ErrorContains(t, err, want)
	}
	var many []sched.Node
	for i := range sched.MaxModels + 1 {
		many = append(many, sched.Node{Name: fmt.Sprint(i), Devices: 1, Model: fmt.Sprint(i)})
	}
	_, err := sched.New(sched.Config{Nodes: many})
	require.ErrorContains(t, err, "65 models")
	many = nil
	for i := range 4097 {
		many = append(many, sched.Node{Name: fmt.Sprint(i), Custom: map[string]sched.Milli{"FPGA": sched.MaxAmount}})
	}
	large := newCluster(t, sched.Config{Nodes: many[:4096]})
	require.EqualValues(t, 1<<62, large.ClusterResources().Custom["FPGA"])
	require.ErrorContains(t, large.AddNodes(many[4096]), "of all nodes together: want at most 4611686018427387904")
	_, err = sched.New(sched.Config{Nodes: many})
	require.ErrorContains(t, err, "of all nodes together")
	c := newCluster(t, sched.Config{Nodes: boxes(1)})
	require.ErrorContains(t, c.AddNodes(sched.Node{Name: "new"}, good), "exists already")
	require.Equal(t, 1, c.NumNodes(), "all or none")
	_, err = c.RemoveNode("n99")
	require.ErrorIs(t, err, sched.ErrUnknown)
	for want, task := range map[string]sched.Task{
		"ID is empty":       {},
		"Priority 10":       {ID: "t", Priority: 10},
		"Bundle 3":          {ID: "t", Bundle: 3},
		`Prefer["x"] -1001`: {ID: "t", Prefer: map[string]int{"x": -1001}},
	} {
		_, err := c.Place(task)
		require.ErrorContains(t, err, want)
	}
	place(t, c, whole("t", 1))
	_, err = c.Place(whole("t", 1))
	require.ErrorIs(t, err, sched.ErrExists)
	_, err = c.Placement("u")
	require.ErrorIs(t, err, sched.ErrUnknown)
}

// TestErrorsBeginWithThePackage: whatever is refused, the error says by whom, once in front.
func TestErrorsBeginWithThePackage(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: blocks(1, 1, 1, 2), Levels: []string{"block", "rack"}})
	server := whole("server", 1)
	server.Preemptible, server.Drain = true, true
	place(t, c, server)
	high := whole("high", 2)
	high.Priority = 1
	plan, err := c.Preempt(high)
	require.NoError(t, err)
	var errs []error
	add := func(_ any, err error) { errs = append(errs, err) }
	add(sched.New(sched.Config{Policy: 99, Levels: []string{""}, Mix: sched.Mix{{}}}))
	add(nil, c.AddNodes(sched.Node{}))
	add(nil, c.AddNodes(blocks(1, 1, 1, 2)...))
	add(nil, c.Cordon("x", true))
	add(c.RemoveNode("x"))
	add(c.Place(sched.Task{}))
	add(c.Place(server))
	add(c.Place(whole("large", 9)))
	add(c.Place(sched.Task{ID: "t", Group: "x"}))
	add(c.PlaceGroup(sched.Group{}))
	add(c.PlaceGroup(sched.Group{ID: "g", Strategy: sched.StrictSpread, Bundles: make([]sched.Request, 2)}))
	add(c.RemoveGroup("x"))
	add(c.PlaceGang(sched.Gang{ID: "g", Tasks: []sched.Task{server, {}}, Constraints: []sched.Constraint{{Size: -1}}}))
	add(c.PlaceGang(sched.Gang{ID: "g", Tasks: []sched.Task{whole("a", 1), whole("b", 1)}}))
	add(c.Preempt(sched.Task{ID: "t", Group: "x"}))
	add(c.Preempt(whole("t", 2)))
	add(c.PreemptGang(sched.Gang{ID: "g", Tasks: []sched.Task{whole("a", 1), whole("b", 2)}}))
	add(c.Complete("x"))
	add(c.Evict(plan, func(sched.Victim) error { return errors.New("stuck") }))
	add(c.Placement("x"))
	add(nil, c.Abandon("x"))
	add(nil, c.Release("x"))
	add(nil, c.Move(sched.Move{Task: "x"}))
	add(nil, c.BeginMove(sched.Move{Task: "x"}))
	add(nil, c.FinishMove(sched.Move{Task: "x"}))
	add(nil, c.AbandonMove("x"))
	add(c.Defragment(sched.Budget{}))
	add(c.Grow(nil, []sched.NodeType{{Max: -1}}))
	add(c.Grow(nil, []sched.NodeType{{}}))
	_, _, err = sched.DevicesOf(math.NaN())
	add(nil, err)
	add(sched.Like(99, "t"))
	for i, err := range errs {
		require.Error(t, err, "%d", i)
		require.True(t, strings.HasPrefix(err.Error(), "sched: "), "%d: %v", i, err)
	}
}

func TestPickDevicesIsAsked(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(4), PickDevices: func(node string, free sched.DeviceSet, k int) sched.DeviceSet {
		require.Equal(t, "n00", node)
		require.Equal(t, 4, free.Len())
		return 0b1010
	}})
	require.Equal(t, []int{1, 3}, place(t, c, whole("pair", 2)).Devices.List())
}

// TestMixIsLearned: without a mix, what comes teaches the policy: tasks for one model
// keep others off it.
func TestMixIsLearned(t *testing.T) {
	nodes := boxes(8, 8)
	nodes[0].Model = "H"
	c := newCluster(t, sched.Config{Nodes: nodes})
	for i := range 200 {
		task := part(fmt.Sprint(i), 500)
		if i%4 == 0 {
			task.Models = []string{"H"}
		}
		place(t, c, task)
		require.NoError(t, c.Release(task.ID))
	}
	require.Equal(t, "n01", place(t, c, part("any", 500)).Node)
}

func TestManyClassesOfRequests(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(8, 8)})
	for round := range 3 {
		for i := range 700 {
			task := sched.Task{ID: "t", Request: sched.Request{CPU: sched.Milli(i), Devices: 1 + i%2}}
			place(t, c, task)
			if i%7 == round {
				place(t, c, part("u", 300))
				require.NoError(t, c.Release("u"))
			}
			require.NoError(t, c.Release("t"))
		}
	}
	requireSane(t, c)
}

func TestBudgetDecision(t *testing.T) {
	counts := make([]int, 1000)
	for i := range counts {
		counts[i] = 1 + i%8
	}
	c := newCluster(t, sched.Config{Nodes: boxes(counts...), Mix: sched.Mix{{Request: sched.Request{CPU: 500, Devices: 1, Share: 300}, Count: 1}}})
	tasks := []sched.Task{part("a", 300), whole("b", 2), cores("c", 2, 1), whole("d", 9)}
	step := func() {
		for _, task := range tasks {
			if _, err := c.Place(task); err == nil {
				if err := c.Release(task.ID); err != nil {
					t.Fatal(err)
				}
			}
			_, _ = c.Decide(task)
		}
	}
	step()
	require.Zero(t, testing.AllocsPerRun(100, step))
}
