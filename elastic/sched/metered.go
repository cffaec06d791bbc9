package sched

import (
	"math/bits"

	"github.com/elasticps/elasticps/elastic/meter"
)

// The resources that a Config.Meter counts: processor time and memory by these names, devices
// and custom resources by these and the name of the model or resource behind them.
const (
	MeterCPU     = "cpu"     // thousandths of a core
	MeterMemory  = "memory"  // bytes
	MeterDevices = "device/" // thousandths of a device
	MeterCustom  = "custom/" // thousandths of a unit
)

// measure tells the meter what all nodes have.
func (c *Cluster) measure() {
	m := c.config.Meter
	if m == nil {
		return
	}
	all := c.ClusterResources()
	balanced(m.SetCapacity(MeterCPU, int64(all.CPU)))
	balanced(m.SetCapacity(MeterMemory, all.MemoryBytes))
	for name, amount := range all.Devices {
		balanced(m.SetCapacity(MeterDevices+name, int64(amount)))
	}
	for name, amount := range all.Custom {
		balanced(m.SetCapacity(MeterCustom+name, int64(amount)))
	}
}

// charge tells the meter what a record has taken, or given back with sign -1.
func (c *Cluster) charge(r *record, sign Milli) {
	m, tenant := c.config.Meter, r.task.Tenant
	switch {
	case r.hold != nil:
		tenant = meter.Held
	case r.group != nil:
		tenant = r.group.Tenant
	}
	balanced(m.Take(tenant, MeterCPU, int64(sign*r.need.cpu)))
	balanced(m.Take(tenant, MeterMemory, int64(sign)*r.need.memory))
	if r.devices != 0 {
		taken := r.need.share * Milli(bits.OnesCount32(uint32(r.devices)))
		balanced(m.Take(tenant, MeterDevices+c.models[c.hosts[r.host].model].name, int64(sign*taken)))
	}
	for _, x := range r.need.custom {
		balanced(m.Take(tenant, MeterCustom+c.customs[x.index], int64(sign*x.amount)))
	}
}

// balanced ends the program if the books of cluster and meter differ: somebody else has
// changed the meter.
func balanced(err error) {
	if err != nil {
		panic("sched: the meter is not of this cluster alone: " + err.Error())
	}
}
