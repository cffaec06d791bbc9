package trace

import (
	"errors"
	"io"

	"github.com/elasticps/elasticps/elastic/sched"
)

// ReadOpenbNodes reads the node list of the openb trace (Alibaba, cluster-trace-gpu-v2023):
// columns sn, cpu_milli, memory_mib, gpu, model. The file's name is for errors.
func ReadOpenbNodes(file string, r io.Reader) ([]sched.Node, error) {
	t, err := newTable(file, r, "sn", "cpu_milli", "memory_mib", "gpu", "model")
	if err != nil {
		return nil, err
	}
	var nodes []sched.Node
	seen := make(map[string]bool)
	for t.next() {
		n := sched.Node{
			Name:        t.name("sn"),
			CPU:         sched.Milli(t.integer("cpu_milli", sched.MaxAmount)),
			MemoryBytes: t.integer("memory_mib", sched.MaxAmount/mebibyte) * mebibyte,
			Devices:     int(t.integer("gpu", sched.MaxDevices)),
		}
		if n.Model = t.text("model"); n.Devices > 0 {
			n.Model = t.name("model")
		}
		t.once(seen, "sn", n.Name)
		nodes = append(nodes, n)
	}
	return nodes, errors.Join(t.errs...)
}

// ReadOpenbPods reads a pod list of the openb trace: columns name, cpu_milli, memory_mib,
// num_gpu, gpu_milli, and if they are there gpu_spec ("A|B"), creation_time and
// deletion_time in seconds.
func ReadOpenbPods(file string, r io.Reader) ([]Job, error) {
	t, err := newTable(file, r, "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
	if err != nil {
		return nil, err
	}
	var jobs []Job
	seen := make(map[string]bool)
	for t.next() {
		var j Job
		j.ID = t.name("name")
		j.CPU = sched.Milli(t.integer("cpu_milli", sched.MaxAmount))
		j.MemoryBytes = t.integer("memory_mib", sched.MaxAmount/mebibyte) * mebibyte
		j.Devices = int(t.integer("num_gpu", sched.MaxDevices))
		if share := t.integer("gpu_milli", int64(sched.Whole)); j.Devices > 0 {
			j.Share, j.Models = sched.Milli(share), t.list("gpu_spec")
			if share == 0 {
				t.errs = append(t.errs, t.fault("gpu_milli", "0", "over 0 where num_gpu is"))
			}
		}
		j.Start, j.End = t.seconds("creation_time"), t.seconds("deletion_time")
		t.once(seen, "name", j.ID)
		t.valid(j.Validate())
		jobs = append(jobs, j)
	}
	return jobs, errors.Join(t.errs...)
}
