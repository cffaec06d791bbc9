package sched_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// The cases are complaints about public schedulers, each with what is right instead. The
// numbers are the same in all packages that have their part of a case.

// boxes are nodes n0, n1 and so on with as many devices each, ten cores to a device.
func boxes(devices ...int) []sched.Node {
	var nodes []sched.Node
	for i, n := range devices {
		nodes = append(nodes, sched.Node{
			Name: fmt.Sprintf("n%02d", i), CPU: sched.Milli(max(n, 1)) * 10 * sched.Whole, MemoryBytes: 1 << 40, Devices: n, Model: "G",
		})
	}
	return nodes
}

func newCluster(t testing.TB, config sched.Config) *sched.Cluster {
	t.Helper()
	c, err := sched.New(config)
	require.NoError(t, err)
	return c
}

// whole asks for whole devices and one core each.
func whole(id string, devices int) sched.Task {
	return sched.Task{ID: id, Request: sched.Request{CPU: sched.Milli(devices) * sched.Whole, Devices: devices}}
}

// part asks for a part of one device.
func part(id string, share sched.Milli) sched.Task {
	return sched.Task{ID: id, Request: sched.Request{Devices: 1, Share: share}}
}

func place(t testing.TB, c *sched.Cluster, task sched.Task) sched.Placement {
	t.Helper()
	p, err := c.Place(task)
	require.NoError(t, err)
	return p
}

func TestCase01BundlesOwnTheirDevices(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(4)})
	one := sched.Request{Devices: 1}
	_, err := c.PlaceGroup(sched.Group{ID: "g", Bundles: []sched.Request{one, one, one, one}})
	require.NoError(t, err)
	var all sched.DeviceSet
	for i := range 4 {
		task := part(fmt.Sprint(i), 500)
		task.Group, task.Bundle = "g", i
		all |= place(t, c, task).Devices
	}
	require.Equal(t, 4, all.Len(), "devices in use: %v", all.List())
}

func TestCase02FractionsAddUpExactly(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(1)})
	place(t, c, part("tenth", 100))
	place(t, c, part("rest", 900))
	require.Zero(t, c.AvailableResources().Accelerator())
	require.NoError(t, c.Release("tenth"))
	require.NoError(t, c.Release("rest"))
	for i := range 10 {
		place(t, c, part(fmt.Sprint(i), 100))
	}
	_, err := c.Place(whole("one", 1))
	require.ErrorIs(t, err, sched.ErrNoRoom)
	for i := range 10 {
		require.NoError(t, c.Release(fmt.Sprint(i)))
	}
	place(t, c, whole("one", 1))

	c = newCluster(t, sched.Config{Nodes: boxes(3)})
	_, err = c.PlaceGroup(sched.Group{ID: "g", Bundles: []sched.Request{part("", 100).Request, part("", 900).Request, part("", 900).Request}})
	require.NoError(t, err)
	for i, share := range []sched.Milli{100, 900, 900} {
		task := part(fmt.Sprint(i), share)
		task.Group, task.Bundle = "g", i
		place(t, c, task)
	}
}

func TestCase04FractionsThatAreNone(t *testing.T) {
	for _, amount := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.5, 0, 1.5, 2.0001, 0.0001, 17, 1e300} {
		_, _, err := sched.DevicesOf(amount)
		require.ErrorContains(t, err, "Devices", "%v", amount)
	}
	for amount, want := range map[float64][2]int64{0.1: {1, 100}, 0.5: {1, 500}, 0.999: {1, 999}, 1: {1, 1000}, 3: {3, 1000}, 16: {16, 1000}} {
		devices, share, err := sched.DevicesOf(amount)
		require.NoError(t, err, "%v", amount)
		require.Equal(t, want, [2]int64{int64(devices), int64(share)}, "%v", amount)
	}
	c := newCluster(t, sched.Config{Nodes: boxes(1)})
	for field, r := range map[string]sched.Request{
		"Share":       {Devices: 1, Share: 1001},
		"Share -1":    {Devices: 1, Share: -1},
		"Share 500":   {Share: 500},
		"Devices":     {Devices: 17},
		"Devices -1":  {Devices: -1},
		"CPU -1":      {CPU: -1},
		"CPU 9":       {CPU: math.MaxInt64},
		"MemoryBytes": {MemoryBytes: -1},
		"Models":      {Models: []string{"G"}},
		"Custom":      {Custom: map[string]sched.Milli{"FPGA": -1}},
		`Custom[""]`:  {Custom: map[string]sched.Milli{"": 1}},
	} {
		_, err := c.Place(sched.Task{ID: "t", Request: r})
		require.ErrorContains(t, err, field, "%+v", r)
		require.Zero(t, c.NumTasks())
	}
}

func TestCase05DevicesAreDistinct(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(8)})
	for i := range 8 { // seven tenths of each of eight cards
		place(t, c, part(fmt.Sprint(i), 700))
	}
	p := place(t, c, sched.Task{ID: "four", Request: sched.Request{Devices: 4, Share: 300}})
	require.Equal(t, 4, p.Devices.Len())
}

func TestCase07PolicyDecidesNodeAndDevice(t *testing.T) {
	for _, policy := range sched.Policies() {
		if policy == sched.Random {
			continue
		}
		c := newCluster(t, sched.Config{Nodes: boxes(2, 2), Policy: policy})
		first, second := place(t, c, part("a", 300)), place(t, c, part("b", 300))
		require.Equal(t, first.Node, second.Node, "%v: nodes", policy)
		require.Equal(t, first.Devices, second.Devices, "%v: devices", policy)
	}
	for strategy, nodes := range map[sched.Strategy]int{sched.Pack: 1, sched.StrictPack: 1, sched.Spread: 2, sched.StrictSpread: 2} {
		c := newCluster(t, sched.Config{Nodes: boxes(2, 2)})
		bundle := part("", 300).Request
		ps, err := c.PlaceGroup(sched.Group{ID: "g", Strategy: strategy, Bundles: []sched.Request{bundle, bundle}})
		require.NoError(t, err)
		require.Equal(t, nodes == 1, ps[0].Node == ps[1].Node, "%v: nodes", strategy)
		require.Equal(t, nodes == 1, ps[0].Node == ps[1].Node && ps[0].Devices == ps[1].Devices, "%v: devices", strategy)
	}
}

func TestCase09BindingConstraintIsNamed(t *testing.T) {
	nodes := boxes(2, 2, 2, 2, 1)
	nodes[1].Custom = map[string]sched.Milli{"slots": 4 * sched.Whole}
	nodes[3].Model = "H"
	c := newCluster(t, sched.Config{Nodes: nodes})
	for i := range 4 {
		task := part(fmt.Sprint(i), 100)
		task.Custom = map[string]sched.Milli{"slots": sched.Whole}
		require.Equal(t, "n01", place(t, c, task).Node)
	}
	task := part("fifth", 100)
	task.Custom = map[string]sched.Milli{"slots": sched.Whole}
	_, err := c.Place(task)
	require.ErrorIs(t, err, sched.ErrNoRoom)
	reasons := make(map[string]string)
	for _, r := range c.Explain(task) {
		reasons[r.Node] = r.String()
	}
	require.Equal(t, "n01: no-custom: slots 1 of 0", reasons["n01"])
	require.Equal(t, "n00: too-small: slots 1 of 0", reasons["n00"])
}

func TestCase13SmallestNodeThatFits(t *testing.T) {
	for _, policy := range []sched.Policy{sched.Default, sched.BestFit} {
		c := newCluster(t, sched.Config{Nodes: boxes(4, 2), Policy: policy})
		require.Equal(t, "n01", place(t, c, whole("job", 2)).Node, "%v", policy)
	}
}

func TestCase14SmallPiecesUseSmallNodes(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(2, 1, 1)})
	_, err := c.PlaceGang(sched.Gang{ID: "a", Tasks: []sched.Task{whole("a0", 1), whole("a1", 1)}})
	require.NoError(t, err)
	require.Equal(t, "n00", place(t, c, whole("b", 2)).Node)
}

func TestCase15RackAfterRack(t *testing.T) {
	var nodes []sched.Node
	for i := range 33 * 18 { // names go round the racks
		nodes = append(nodes, sched.Node{
			Name: fmt.Sprintf("n%03d", i), CPU: 40 * sched.Whole, Devices: 4, Model: "G",
			Domains: []string{fmt.Sprintf("rack%02d", i%33)},
		})
	}
	c := newCluster(t, sched.Config{Nodes: nodes, Levels: []string{"rack"}})
	racks := make(map[string]int)
	var number int
	for i := range 72 {
		_, err := fmt.Sscanf(place(t, c, whole(fmt.Sprint(i), 1)).Node, "n%d", &number)
		require.NoError(t, err)
		racks[fmt.Sprint(number%33)]++
	}
	require.Len(t, racks, 1)
}

func TestCase17ConstraintsPerParallelGroup(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: blocks(2, 2, 3, 8), Levels: []string{"block", "rack"}})
	place(t, c, whole("in the way", 1))
	gang := sched.Gang{ID: "llm", Constraints: []sched.Constraint{{Size: 8, Within: sched.NodeLevel}, {Within: "block"}}}
	for i := range 32 {
		gang.Tasks = append(gang.Tasks, whole(fmt.Sprintf("rank%02d", i), 1))
	}
	ps, err := c.PlaceGang(gang)
	require.NoError(t, err)
	require.Len(t, ps, 32)
	for i, p := range ps {
		require.Equal(t, ps[i/8*8].Node, p.Node, "tensor-parallel group of rank %d", i)
		require.Equal(t, ps[0].Node[:2], p.Node[:2], "block of rank %d", i)
	}
}

// blocks are nodes named b0-r0-n0 and so on.
func blocks(blocks, racks, nodes, devices int) []sched.Node {
	var all []sched.Node
	for b := range blocks {
		for r := range racks {
			for n := range nodes {
				all = append(all, sched.Node{
					Name: fmt.Sprintf("b%d-r%d-n%d", b, r, n), CPU: 100 * sched.Whole, Devices: devices, Model: "G",
					Domains: []string{fmt.Sprintf("b%d", b), fmt.Sprintf("r%d", r)},
				})
			}
		}
	}
	return all
}

func TestCase18PreferredLevel(t *testing.T) {
	gang := func(n int, required, preferred string) sched.Gang {
		g := sched.Gang{ID: "g", Constraints: []sched.Constraint{{Within: required, Prefer: preferred}}}
		for i := range n {
			g.Tasks = append(g.Tasks, whole(fmt.Sprint("g", i), 1))
		}
		return g
	}
	racksOf := func(ps []sched.Placement) map[string]bool {
		racks := make(map[string]bool)
		for _, p := range ps {
			racks[p.Node[:5]] = true
		}
		return racks
	}
	for _, required := range []string{"block", "rack"} { // the same level twice is that level
		c := newCluster(t, sched.Config{Nodes: blocks(2, 2, 2, 4), Levels: []string{"block", "rack"}})
		ps, err := c.PlaceGang(gang(8, required, "rack"))
		require.NoError(t, err)
		require.Len(t, racksOf(ps), 1)
	}
	c := newCluster(t, sched.Config{Nodes: blocks(2, 2, 2, 4), Levels: []string{"block", "rack"}})
	ps, err := c.PlaceGang(gang(12, "block", "rack")) // no rack is large enough
	require.NoError(t, err)
	require.Len(t, racksOf(ps), 2)
	_, err = c.PlaceGang(sched.Gang{ID: "x", Tasks: gang(12, "", "").Tasks, Constraints: []sched.Constraint{{Within: "rack", Prefer: "block"}}})
	require.ErrorContains(t, err, "Prefer")
}

func TestCase19ReservationsAreSeenAtOnce(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(8, 8, 8, 8)})
	var (
		mu     sync.Mutex // stands for the mailbox of the actor that owns a cluster
		placed int
		wg     sync.WaitGroup
	)
	for i := range 1000 {
		wg.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			if _, err := c.Place(part(fmt.Sprint(i), 300)); err == nil {
				placed++
			} else if !errors.Is(err, sched.ErrNoRoom) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 32*3, placed)
	requireSane(t, c)
}

func TestCase20AdmissionNeedsAPlace(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(4, 4)})
	_, err := c.Place(whole("job", 8))
	require.ErrorIs(t, err, sched.ErrInfeasible)
	for _, r := range c.Explain(whole("job", 8)) {
		require.Equal(t, sched.TooSmall, r.Reason, "%v", r)
	}
	for i := range 4 {
		place(t, c, whole(fmt.Sprint(i), 1))
	}
	_, err = c.Place(whole("four", 4))
	require.NoError(t, err, "the other node is empty")
	_, err = c.Place(whole("four more", 4))
	require.ErrorIs(t, err, sched.ErrNoRoom)
}

func TestCase23TwoGangsDoNotBlockEachOther(t *testing.T) {
	nodes := make([]int, 100)
	for i := range nodes {
		nodes[i] = 1
	}
	c := newCluster(t, sched.Config{Nodes: boxes(nodes...)})
	run := 0
	for _, id := range []string{"a", "b"} {
		g := sched.Gang{ID: id}
		for i := range 100 {
			g.Tasks = append(g.Tasks, whole(fmt.Sprint(id, i), 1))
		}
		if _, err := c.PlaceGang(g); err == nil {
			run++
		} else {
			require.ErrorIs(t, err, sched.ErrNoRoom)
		}
	}
	require.Equal(t, 1, run)
	require.Equal(t, 100, c.NumTasks())
}

func TestCase32InfeasibleGroupIsPassedOver(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(1, 1)})
	two := sched.Request{CPU: 2 * sched.Whole}
	_, err := c.PlaceGroup(sched.Group{ID: "never", Strategy: sched.StrictSpread, Bundles: []sched.Request{two, two, two}})
	require.ErrorIs(t, err, sched.ErrInfeasible)
	require.ErrorContains(t, err, `"never"`)
	require.ErrorContains(t, err, "STRICT_SPREAD")
	ps, err := c.PlaceGroup(sched.Group{ID: "fits", Strategy: sched.StrictSpread, Bundles: []sched.Request{two, two}})
	require.NoError(t, err)
	require.NotEqual(t, ps[0].Node, ps[1].Node)
}
