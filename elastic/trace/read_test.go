package trace_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
	"github.com/elasticps/elasticps/elastic/trace"
)

func TestReadOpenb(t *testing.T) {
	nodes, err := trace.ReadOpenbNodes("nodes.csv", strings.NewReader(
		"sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,8000,1,0,\n"))
	require.NoError(t, err)
	require.Equal(t, []sched.Node{
		{Name: "n1", CPU: 64000, MemoryBytes: 262144 << 20, Devices: 2, Model: "P100"},
		{Name: "n2", CPU: 8000, MemoryBytes: 1 << 20},
	}, nodes)

	jobs, err := trace.ReadOpenbPods("pods.csv", strings.NewReader(
		"\ufeffname, cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time\r\n"+
			"p1,6000,12288,1,460,V100M32|G2|V100M32,LS,Running,10,70\r\np2,1,1,0,0,,,,,\r\n"))
	require.NoError(t, err)
	require.Equal(t, []trace.Job{
		{Task: sched.Task{ID: "p1", Request: sched.Request{
			CPU: 6000, MemoryBytes: 12288 << 20, Devices: 1, Share: 460, Models: []string{"G2", "V100M32"},
		}}, Start: 10 * time.Second, End: 70 * time.Second},
		{Task: sched.Task{ID: "p2", Request: sched.Request{CPU: 1, MemoryBytes: 1 << 20}}},
	}, jobs)
	_, err = trace.ReadOpenbPods("short.csv", strings.NewReader("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,8,1000\n"))
	require.NoError(t, err, "columns that are optional")
}

func TestReadTables(t *testing.T) {
	nodes, err := trace.ReadNodes("nodes.csv", strings.NewReader(
		"name,cpu,memory_gib,devices,model,vendor,domains,custom.FPGA\na,64,256.5,8,910B,ascend,z1/r1,2\nb,0.5,,,,,z1/r2,\n"))
	require.NoError(t, err)
	require.Equal(t, []sched.Node{
		{
			Name: "a", CPU: 64000, MemoryBytes: 256<<30 + 1<<29, Devices: 8, Model: "910B", Vendor: "ascend",
			Domains: []string{"z1", "r1"}, Custom: map[string]sched.Milli{"FPGA": 2000},
		},
		{Name: "b", CPU: 500, Domains: []string{"z1", "r2"}},
	}, nodes)
	jobs, err := trace.ReadTasks("tasks.csv", strings.NewReader(
		"duration_s,name,cpu,devices,models,vendors,priority,preemptible,start_s,custom.quantum\n60,t,2,0.5,A|B,nvidia,9,true,30,0.25\n,u,1,4,,,,,,\n"))
	require.NoError(t, err)
	require.Equal(t, []trace.Job{
		{
			Task: sched.Task{ID: "t", Priority: 9, Preemptible: true, Request: sched.Request{
				CPU: 2000, Devices: 1, Share: 500, Models: []string{"A", "B"}, Vendors: []string{"nvidia"},
				Custom: map[string]sched.Milli{"quantum": 250},
			}},
			Start: 30 * time.Second, End: 90 * time.Second,
		},
		{Task: sched.Task{ID: "u", Request: sched.Request{CPU: 1000, Devices: 4, Share: 1000}}},
	}, jobs)
}

// TestFaultyTables: every fault is told with file, line and field.
func TestFaultyTables(t *testing.T) {
	openbNodes := func(r io.Reader) error { _, err := trace.ReadOpenbNodes("f.csv", r); return err }
	openbPods := func(r io.Reader) error { _, err := trace.ReadOpenbPods("f.csv", r); return err }
	nodes := func(r io.Reader) error { _, err := trace.ReadNodes("f.csv", r); return err }
	tasks := func(r io.Reader) error { _, err := trace.ReadTasks("f.csv", r); return err }
	const (
		n = "sn,cpu_milli,memory_mib,gpu,model\n"
		p = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
	)
	for _, x := range []struct {
		read  func(io.Reader) error
		text  string
		line  int
		field string
	}{
		{openbNodes, "sn,cpu_milli,gpu,model\n", 1, "memory_mib"},
		{openbNodes, n + "a,1,1,1,P\na,1,1,1,P\n", 3, "sn"},
		{openbNodes, n + "a,1,1,1,\n", 2, "model"},
		{openbNodes, n + ",1,1,1,P\n", 2, "sn"},
		{openbNodes, n + "a,,1,1,P\n", 2, "cpu_milli"},
		{openbNodes, n + "a,1,1,17,P\n", 2, "gpu"},
		{openbNodes, n + "a,-1,1,1,P\n", 2, "cpu_milli"},
		{openbNodes, n + "a,1,99999999999999999999,1,P\n", 2, "memory_mib"},
		{openbPods, "name,name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", 1, "column"},
		{openbPods, p + "a,1,1,1,1001\n", 2, "gpu_milli"},
		{openbPods, p + "a,1,1,1,0\n", 2, "gpu_milli"},
		{openbPods, p + "a,1,1,1.5,1000\n", 2, "num_gpu"},
		{openbPods, p + "a,1,1,0,0\n\n\na,1,1,0,0\n", 5, "name"},
		{nodes, "name,cpu\na,NaN\n", 2, "cpu"},
		{nodes, "name,cpu\na,+Inf\n", 2, "cpu"},
		{nodes, "name,cpu\na,1e300\n", 2, "cpu"},
		{nodes, "name,cpu,devices\na,1,1\n", 2, "model"},
		{nodes, "name,cpu,custom.FPGA\na,1,x\n", 2, "custom.FPGA"},
		{tasks, "name,cpu,devices\na,1,NaN\n", 2, "devices"},
		{tasks, "name,cpu,devices\na,1,-0.5\n", 2, "devices"},
		{tasks, "name,cpu,devices\na,1,1.5\n", 2, "devices"},
		{tasks, "name,cpu,devices\na,1,half\n", 2, "devices"},
		{tasks, "name,cpu,priority\na,1,10\n", 2, "priority"},
		{tasks, "name,cpu,preemptible\na,1,maybe\n", 2, "preemptible"},
		{tasks, "name,cpu,start_s\na,1,-1\n", 2, "start_s"},
	} {
		var fault *trace.FieldError
		err := x.read(strings.NewReader(x.text))
		require.ErrorAs(t, err, &fault, x.text)
		require.Equal(t, "f.csv", fault.File, x.text)
		require.Equal(t, x.line, fault.Line, x.text)
		require.Equal(t, x.field, fault.Field, x.text)
	}
	for want, text := range map[string]string{
		"f.csv:1":        "",
		"line 3":         "name,cpu\na,1\nb\n",
		"f.csv:2: sched": "name,cpu,models\na,1,A\n",
	} {
		require.ErrorContains(t, tasks(strings.NewReader(text)), want, text)
	}
	broken := errors.New("disk is gone")
	require.ErrorIs(t, tasks(io.MultiReader(strings.NewReader("name,cpu\n"), failing{broken})), broken)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzReadTables(f *testing.F) {
	f.Add("name,cpu,devices,models,custom.x\na,1,0.5,A|B,1\n")
	f.Add("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\n")
	f.Add("sn,cpu_milli,memory_mib,gpu,model\n\"a\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(string, io.Reader) ([]trace.Job, error){trace.ReadTasks, trace.ReadOpenbPods} {
			jobs, err := read("f.csv", strings.NewReader(text))
			for i := range jobs {
				if err == nil {
					require.NoError(t, jobs[i].Validate())
				}
			}
		}
		for _, read := range []func(string, io.Reader) ([]sched.Node, error){trace.ReadNodes, trace.ReadOpenbNodes} {
			nodes, err := read("f.csv", strings.NewReader(text))
			if err == nil && len(nodes) > 0 && nodes[0].Domains == nil {
				_, err = sched.New(sched.Config{Nodes: nodes[:1]})
				require.NoError(t, err)
			}
		}
	})
}
