package trace_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/trace"
)

// openb reads a workload of the openb trace, if it is there. The folder has
// openb_node_list_gpu_node.csv and openb_pod_list_*.csv of
// github.com/hkust-adsl/kubernetes-scheduler-simulator, data/csv.
func openb(t testing.TB, workload string) ([]sched.Node, []sched.Task) {
	t.Helper()
	folder := os.Getenv("ELASTICPS_OPENB")
	if folder == "" {
		t.Skip("ELASTICPS_OPENB names no folder: get data/csv of github.com/hkust-adsl/kubernetes-scheduler-simulator")
	}
	file, err := os.Open(filepath.Join(folder, "openb_node_list_gpu_node.csv"))
	require.NoError(t, err)
	defer file.Close()
	nodes, err := trace.ReadOpenbNodes(file.Name(), file)
	require.NoError(t, err)
	file, err = os.Open(filepath.Join(folder, "openb_pod_list_"+workload+".csv"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s has no openb_pod_list_%s.csv", folder, workload)
	}
	require.NoError(t, err)
	defer file.Close()
	jobs, err := trace.ReadOpenbPods(file.Name(), file)
	require.NoError(t, err)
	return nodes, trace.Tasks(jobs)
}

// published are the means of the seeds 42 to 51 by Weng et al. (USENIX ATC 2023, tables of the
// repository) of Random, BestFit, DotProduct and FGD, at 100 and 130 % arrived load.
var published = []struct {
	workload string
	means    [4][2]float64
}{
	{"default", [4][2]float64{{86.30, 87.47}, {92.86, 93.08}, {90.62, 90.85}, {95.23, 95.39}}},
	{"cpu050", [4][2]float64{{89.02, 91.24}, {93.56, 93.79}, {93.03, 93.27}, {95.00, 95.21}}},
	{"cpu100", [4][2]float64{{87.44, 89.11}, {93.26, 93.44}, {91.73, 91.95}, {95.21, 95.35}}},
	{"cpu200", [4][2]float64{{83.03, 83.77}, {92.15, 92.40}, {87.46, 87.70}, {94.82, 95.05}}},
	{"cpu250", [4][2]float64{{80.00, 80.41}, {91.21, 91.45}, {83.57, 83.81}, {93.20, 93.41}}},
	{"gpushare40", [4][2]float64{{84.86, 86.00}, {91.44, 91.69}, {89.30, 89.56}, {93.96, 94.15}}},
	{"gpushare60", [4][2]float64{{82.81, 83.65}, {89.06, 89.36}, {86.82, 87.11}, {91.25, 91.40}}},
	{"gpushare80", [4][2]float64{{80.62, 81.22}, {86.66, 87.01}, {84.14, 84.49}, {89.08, 89.31}}},
	{"gpushare100", [4][2]float64{{78.90, 79.44}, {84.62, 85.01}, {81.98, 82.42}, {86.64, 86.90}}},
	{"gpuspec10", [4][2]float64{{86.26, 87.43}, {93.10, 93.31}, {90.17, 90.39}, {94.66, 94.95}}},
	{"gpuspec20", [4][2]float64{{85.90, 87.24}, {88.46, 93.30}, {88.29, 89.97}, {94.66, 94.84}}},
	{"gpuspec25", [4][2]float64{{85.42, 86.94}, {85.67, 93.23}, {85.44, 89.63}, {93.91, 94.74}}},
	{"gpuspec33", [4][2]float64{{83.87, 86.46}, {80.40, 93.09}, {79.82, 89.14}, {87.84, 94.55}}},
	{"multigpu20", [4][2]float64{{86.92, 88.69}, {93.73, 93.93}, {91.85, 92.06}, {95.53, 95.65}}},
	{"multigpu30", [4][2]float64{{86.63, 89.27}, {94.57, 94.72}, {93.11, 93.28}, {96.36, 96.46}}},
	{"multigpu40", [4][2]float64{{85.37, 90.09}, {95.10, 95.23}, {94.04, 94.19}, {96.91, 96.99}}},
	{"multigpu50", [4][2]float64{{81.28, 90.28}, {95.62, 95.74}, {94.73, 94.85}, {97.09, 97.18}}},
}

// baselines are the policies with published means, in their order, and how far from those
// the means of the same seeds may be. Random draws other numbers, and the published FGD
// tells some equals apart by what its sums lose in rounding; the others are the same.
var baselines = []struct {
	policy sched.Policy
	within float64
}{{sched.Random, 0.3}, {sched.BestFit, 0.02}, {sched.DotProduct, 0.02}, {sched.FGD, 0.3}}

// floors are what Default reached once on the workloads that it was made with.
var floors = map[string][2]float64{
	"default": {95.73, 95.84}, "cpu250": {94.16, 94.40}, "gpuspec20": {95.73, 95.86},
	"multigpu20": {96.14, 96.25}, "gpushare40": {94.32, 94.46},
}

// allocated is the mean of the devices in use at 100 and 130 % arrived load.
func allocated(t *testing.T, nodes []sched.Node, tasks []sched.Task, policy sched.Policy) (at100, at130 float64) {
	t.Helper()
	for seed := int64(42); seed < 52; seed++ {
		curve, cluster, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Policy: policy, Seed: seed}.Run()
		require.NoError(t, err)
		require.Equal(t, curve.Placed, cluster.NumTasks())
		at100 += curve.Allocated[100] / 10
		at130 += curve.Allocated[130] / 10
	}
	t.Logf("| %v | %.2f | %.2f |", policy, at100, at130)
	return at100, at130
}

func TestOpenbPolicies(t *testing.T) {
	for _, row := range published {
		t.Run(row.workload, func(t *testing.T) {
			t.Parallel()
			nodes, tasks := openb(t, row.workload)
			for i, base := range baselines {
				at100, at130 := allocated(t, nodes, tasks, base.policy)
				require.InDelta(t, row.means[i][0], at100, base.within, "%v at 100 %%", base.policy)
				require.InDelta(t, row.means[i][1], at130, base.within, "%v at 130 %%", base.policy)
			}
			least := row.means[3] // FGD, the best of them
			if floor, ok := floors[row.workload]; ok {
				least = floor
			}
			at100, at130 := allocated(t, nodes, tasks, sched.Default)
			require.GreaterOrEqual(t, at100, least[0])
			require.GreaterOrEqual(t, at130, least[1])
		})
	}
}

// TestOpenbUnknown: a policy that has to learn what comes is nearly as good.
func TestOpenbUnknown(t *testing.T) {
	for _, workload := range []string{"default", "cpu250", "gpuspec20", "multigpu20", "gpushare40"} {
		nodes, tasks := openb(t, workload)
		known, _, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Seed: 42}.Run()
		require.NoError(t, err)
		learned, _, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Seed: 42, Unknown: true}.Run()
		require.NoError(t, err)
		t.Logf("| %s | %.2f | %.2f |", workload, learned.Allocated[100], learned.Allocated[130])
		require.GreaterOrEqual(t, learned.Allocated[100], known.Allocated[100]-0.5)
		require.GreaterOrEqual(t, learned.Allocated[130], known.Allocated[130]-0.5)
	}
}

// TestOpenbCurve: the curve of a seed is the published one, which is a mean of numbers of two
// digits.
func TestOpenbCurve(t *testing.T) {
	nodes, tasks := openb(t, "default")
	full := []int{92, 94, 95, 96, 97, 98, 99, 100, 110, 120, 130}
	for _, x := range []struct {
		policy     sched.Policy
		seed       int64
		head, tail []float64 // at 0 to 10 % and where it is full
	}{
		{
			sched.FGD, 42,
			[]float64{0.25, 1.04, 2.01, 3.01, 3.98, 5.06, 5.98, 7.02, 8.03, 8.99, 10.03},
			[]float64{92.02, 94.03, 94.92, 95.10, 95.13, 95.14, 95.14, 95.14, 95.19, 95.24, 95.29},
		},
		{
			sched.FGD, 43,
			[]float64{0.26, 0.98, 2.0, 2.98, 3.98, 5.02, 5.98, 7.0, 8.0, 9.0, 10.06},
			[]float64{92.0, 94.06, 94.85, 95.02, 95.03, 95.04, 95.05, 95.06, 95.14, 95.23, 95.32},
		},
		{
			sched.BestFit, 42, nil,
			[]float64{92.02, 92.87, 92.87, 92.89, 92.92, 92.93, 92.94, 92.94, 93.0, 93.07, 93.13},
		},
		{
			sched.DotProduct, 42, nil,
			[]float64{90.26, 90.27, 90.27, 90.29, 90.32, 90.33, 90.33, 90.34, 90.39, 90.46, 90.54},
		},
	} {
		curve, _, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Policy: x.policy, Seed: x.seed}.Run()
		require.NoError(t, err)
		for at, percent := range x.head {
			require.InDelta(t, percent, curve.Allocated[at], 0.0101, "%v, seed %d at %d %%", x.policy, x.seed, at)
		}
		for i, percent := range x.tail {
			require.InDelta(t, percent, curve.Allocated[full[i]], 0.0101, "%v, seed %d at %d %%", x.policy, x.seed, full[i])
		}
	}
}

// TestOpenbFragmentation: the metric agrees with the published one of the same seed, and
// Default leaves fewer fragments than FGD.
func TestOpenbFragmentation(t *testing.T) {
	nodes, tasks := openb(t, "default")
	for _, x := range []struct {
		policy       sched.Policy
		at80, at100  float64
		below, above float64
	}{
		{sched.Random, 16.11, 13.60, 0.5, 0.5},
		{sched.BestFit, 8.22, 6.99, 0.0101, 0.0101},
		{sched.FGD, 5.96, 4.83, 0.0101, 0.0101},
		{sched.Default, 5.96, 4.83, 6, -0.2},
	} {
		curve, _, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Policy: x.policy, Seed: 42, Fragmentation: true}.Run()
		require.NoError(t, err)
		t.Logf("| %v | %.2f | %.2f |", x.policy, curve.Fragmented[80], curve.Fragmented[100])
		for percent, want := range map[int]float64{80: x.at80, 100: x.at100} {
			require.LessOrEqual(t, curve.Fragmented[percent], want+x.above, "%v at %d %%", x.policy, percent)
			require.GreaterOrEqual(t, curve.Fragmented[percent], want-x.below, "%v at %d %%", x.policy, percent)
		}
	}
}

func TestOpenbDefragment(t *testing.T) {
	nodes, tasks := openb(t, "default")
	for i := range tasks {
		tasks[i].Movable = true
	}
	for load, most := range map[int]float64{100: 6.0, 80: 6.9} {
		_, c, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Policy: sched.Random, Seed: 42, Load: load}.Run()
		require.NoError(t, err)
		before, _ := c.Fragmentation()
		running, left := c.NumTasks(), c.AvailableResources().Accelerator()
		moves, err := c.Defragment(sched.Budget{Moves: running / 10})
		require.NoError(t, err)
		for _, m := range moves {
			require.NoError(t, c.Move(m), "every prefix of the plan has room")
		}
		after, _ := c.Fragmentation()
		t.Logf("| %d %% | %d | %d | %.2f | %.2f |", load, running, len(moves), before*100, after*100)
		require.Greater(t, before*100, 12.0)
		require.LessOrEqual(t, after*100, most)
		require.Equal(t, running, c.NumTasks(), "nothing is lost")
		require.Equal(t, left, c.AvailableResources().Accelerator())
	}
}

// copies is the trace several times over.
func copies(nodes []sched.Node, tasks []sched.Task, times int) ([]sched.Node, []sched.Task) {
	var (
		manyNodes []sched.Node
		manyTasks []sched.Task
	)
	for k := range times {
		for _, n := range nodes {
			n.Name = fmt.Sprintf("%s-%d", n.Name, k)
			manyNodes = append(manyNodes, n)
		}
		for _, task := range tasks {
			task.ID = fmt.Sprintf("%s-%d", task.ID, k)
			manyTasks = append(manyTasks, task)
		}
	}
	return manyNodes, manyTasks
}

// BenchmarkOpenbDecision places all that comes up to 130 % arrived load and reports what one
// placement takes of a processor, decision and booking together, the first one of each kind
// included; and what it takes by the clock, which others on the machine have a part in.
func BenchmarkOpenbDecision(b *testing.B) {
	nodes, tasks := openb(b, "default")
	for _, times := range []int{2, 16} {
		nodes, tasks := copies(nodes, tasks, times)
		for _, policy := range []sched.Policy{sched.Default, sched.FGD, sched.BestFit} {
			b.Run(fmt.Sprintf("%v/%d-nodes", policy, len(nodes)), func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var cpu, wall []time.Duration
				for b.Loop() {
					cpu, wall = decisions(b, nodes, tasks, policy)
				}
				slices.Sort(cpu)
				slices.Sort(wall)
				part := func(took []time.Duration, percent int) float64 {
					return float64(took[len(took)*percent/100].Nanoseconds()) / 1e3
				}
				b.ReportMetric(part(cpu, 50), "p50-cpu-µs")
				b.ReportMetric(part(cpu, 99), "p99-cpu-µs")
				b.ReportMetric(part(wall, 50), "p50-µs")
				b.ReportMetric(part(wall, 99), "p99-µs")
				b.ReportMetric(float64(len(cpu)), "decisions")
			})
		}
	}
}

func decisions(b *testing.B, nodes []sched.Node, tasks []sched.Task, policy sched.Policy) (cpu, wall []time.Duration) {
	b.Helper()
	c, err := sched.New(sched.Config{Nodes: nodes, Policy: policy, Mix: sched.MixOf(tasks)})
	require.NoError(b, err)
	order := trace.Arrivals(tasks, c.ClusterResources().Accelerator(), 130, 42)
	cpu, wall = make([]time.Duration, 0, len(order)), make([]time.Duration, 0, len(order))
	for n, i := range order {
		task := tasks[i]
		if n >= len(tasks) {
			task.ID = fmt.Sprint("again", n)
		}
		begin, beginCPU := time.Now(), cpuTime()
		_, _ = c.Place(task)
		cpu, wall = append(cpu, cpuTime()-beginCPU), append(wall, time.Since(begin))
	}
	return cpu, wall
}
