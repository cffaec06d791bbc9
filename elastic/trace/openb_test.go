package trace_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

// seeds are those of the published runs, 42 to 51: all of them if ELASTICPS_OPENB_SEEDS is
// 10, two by default.
func seeds(t testing.TB) []int64 {
	t.Helper()
	n := 2
	if text := os.Getenv("ELASTICPS_OPENB_SEEDS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	var list []int64
	for i := range n {
		list = append(list, int64(42+i))
	}
	return list
}

// published are the means of ten seeds by Weng et al. (USENIX ATC 2023, tables of the
// repository) of Random, BestFit and FGD, at 100 and 130 % arrived load.
var published = []struct {
	workload string
	means    [3][2]float64
}{
	{"default", [3][2]float64{{86.30, 87.47}, {92.86, 93.08}, {95.23, 95.39}}},
	{"cpu050", [3][2]float64{{89.02, 91.24}, {93.56, 93.79}, {95.00, 95.21}}},
	{"cpu100", [3][2]float64{{87.44, 89.11}, {93.26, 93.44}, {95.21, 95.35}}},
	{"cpu200", [3][2]float64{{83.03, 83.77}, {92.15, 92.40}, {94.82, 95.05}}},
	{"cpu250", [3][2]float64{{80.00, 80.42}, {91.21, 91.45}, {93.20, 93.41}}},
	{"gpushare40", [3][2]float64{{84.86, 86.00}, {91.44, 91.69}, {93.96, 94.15}}},
	{"gpushare60", [3][2]float64{{82.81, 83.65}, {89.06, 89.36}, {91.25, 91.40}}},
	{"gpushare80", [3][2]float64{{80.62, 81.22}, {86.66, 87.01}, {89.08, 89.30}}},
	{"gpushare100", [3][2]float64{{78.90, 79.44}, {84.62, 85.01}, {86.64, 86.90}}},
	{"gpuspec10", [3][2]float64{{86.26, 87.43}, {93.10, 93.30}, {94.66, 94.95}}},
	{"gpuspec20", [3][2]float64{{85.90, 87.24}, {88.46, 93.30}, {94.66, 94.84}}},
	{"gpuspec25", [3][2]float64{{85.42, 86.94}, {85.67, 93.23}, {93.91, 94.74}}},
	{"gpuspec33", [3][2]float64{{83.87, 86.46}, {80.39, 93.09}, {87.84, 94.55}}},
	{"multigpu20", [3][2]float64{{86.92, 88.69}, {93.73, 93.93}, {95.53, 95.65}}},
	{"multigpu30", [3][2]float64{{86.63, 89.27}, {94.57, 94.72}, {96.36, 96.46}}},
	{"multigpu40", [3][2]float64{{85.38, 90.09}, {95.10, 95.23}, {96.91, 96.99}}},
	{"multigpu50", [3][2]float64{{81.28, 90.27}, {95.62, 95.74}, {97.09, 97.18}}},
}

// farOff says where FGD does not come within 0.3 points of the published means: the more
// tasks ask for processors alone, the further. Scores, order and metric are checked
// against the paper; what breaks the ties between such tasks in the published runs is not
// known.
var farOff = map[string]float64{"cpu200": 0.8, "cpu250": 1.8, "gpuspec10": 0.5, "gpuspec25": 0.5, "gpuspec33": 0.5}

// allocated is the mean of the devices in use at 100 and 130 % arrived load.
func allocated(t *testing.T, nodes []sched.Node, tasks []sched.Task, policy sched.Policy) (at100, at130 float64) {
	t.Helper()
	list := seeds(t)
	for _, seed := range list {
		curve, cluster, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Policy: policy, Seed: seed}.Run()
		require.NoError(t, err)
		require.Equal(t, curve.Placed, cluster.NumTasks())
		at100 += curve.Allocated[100] / float64(len(list))
		at130 += curve.Allocated[130] / float64(len(list))
	}
	return at100, at130
}

func TestOpenbPolicies(t *testing.T) {
	for _, row := range published {
		t.Run(row.workload, func(t *testing.T) {
			t.Parallel()
			nodes, tasks := openb(t, row.workload)
			fgd := row.means[2]
			least := [2]float64{fgd[0] - 0.1, fgd[1] - 0.1}
			if row.workload == "default" {
				least = [2]float64{95.5, 95.6}
			}
			for _, policy := range sched.Policies() {
				at100, at130 := allocated(t, nodes, tasks, policy)
				t.Logf("| %s | %v | %.2f | %.2f |", row.workload, policy, at100, at130)
				if policy == sched.Default {
					require.GreaterOrEqual(t, at100, least[0])
					require.GreaterOrEqual(t, at130, least[1])
				}
				known := slices.Index([]sched.Policy{sched.Random, sched.BestFit, sched.FGD}, policy)
				if known < 0 {
					continue
				}
				within := 0.3
				if policy == sched.FGD {
					within = max(within, farOff[row.workload])
				}
				if len(seeds(t)) < 10 {
					within += 0.3 // the means of few seeds differ by chance
				}
				if policy == sched.Random {
					within += 0.6 // and so do other random numbers
				}
				require.InDelta(t, row.means[known][0], at100, within, "%v at 100 %%", policy)
				require.InDelta(t, row.means[known][1], at130, within, "%v at 130 %%", policy)
			}
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

// TestOpenbArrivals: as long as nothing is turned away, the curve is the one of the
// published runs, to the last digit.
func TestOpenbArrivals(t *testing.T) {
	nodes, tasks := openb(t, "default")
	for seed, want := range map[int64][]float64{
		42: {0.25, 1.04, 2.01, 3.01, 3.98, 5.06, 5.98, 7.02, 8.03, 8.99, 10.03},
		43: {0.26, 0.98, 2.0, 2.98, 3.98, 5.02, 5.98, 7.0, 8.0, 9.0, 10.06},
	} {
		curve, _, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Policy: sched.FGD, Seed: seed, Load: 11}.Run()
		require.NoError(t, err)
		for x, percent := range want {
			require.InDelta(t, percent, math.Round(curve.Allocated[x]*100)/100, 1e-9, "seed %d at %d %%", seed, x)
		}
	}
}

// TestOpenbFragmentation: the metric agrees with the published one, and Default leaves no
// more fragments than FGD.
func TestOpenbFragmentation(t *testing.T) {
	nodes, tasks := openb(t, "default")
	for _, x := range []struct {
		policy       sched.Policy
		at80, at100  float64
		below, above float64
	}{
		{sched.Random, 15.92, 13.49, 0.5, 0.5},
		{sched.FGD, 5.97, 4.73, 0.5, 0.5},
		{sched.Default, 5.97, 4.73, 6, 0},
	} {
		curve, _, err := trace.Experiment{Nodes: nodes, Tasks: tasks, Policy: x.policy, Seed: 42, Load: 101, Fragmentation: true}.Run()
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
