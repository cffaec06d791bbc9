package sched_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/meter"
	"github.com/elasticps/elasticps/elastic/sched"
)

// requireWhole checks that tenants and idle add up to capacity.
func requireWhole(t testing.TB, s meter.Statement) {
	t.Helper()
	for name, u := range s.Resources {
		sum := u.Idle
		for _, q := range u.Tenants {
			sum = sum.Plus(q)
		}
		require.Equal(t, u.Capacity, sum, name)
	}
}

// TestCase39QuartersAreOneDevice: four quarters of a device for an hour are one hour of it,
// not four, and what is idle has no part of what is shared.
func TestCase39QuartersAreOneDevice(t *testing.T) {
	m := meter.New(0)
	c := newCluster(t, sched.Config{Nodes: boxes(2), Meter: m})
	for i := range 4 {
		task := part(fmt.Sprint(i), 250)
		task.Tenant = []string{"blue", "red"}[i/3]
		place(t, c, task)
	}
	m.Advance(time.Hour)
	s := m.Close()
	requireWhole(t, s)
	require.Equal(t, meter.Usage{
		Capacity: meter.Over(2000, time.Hour), Idle: meter.Over(1000, time.Hour),
		Tenants: map[string]meter.Quantity{"blue": meter.Over(750, time.Hour), "red": meter.Over(250, time.Hour)},
	}, s.Resources[sched.MeterDevices+"G"])
	for i := range 4 {
		require.NoError(t, c.Release(fmt.Sprint(i)))
	}
	m.Advance(2 * time.Hour)
	require.Equal(t, meter.Over(2000, time.Hour), m.Close().Resources[sched.MeterDevices+"G"].Idle)
}

// What is reserved counts: bundles for the tenant of their group, tasks in them no second time,
// and room that is kept for a preemptor or a move for Held.
func TestMeterOfReservations(t *testing.T) {
	m := meter.New(0)
	c := newCluster(t, sched.Config{Nodes: boxes(1, 1), Meter: m})
	devices := func() map[string]meter.Quantity {
		m.Advance(time.Duration(m.Statement().End) + time.Second)
		s := m.Close()
		requireWhole(t, s)
		return s.Resources[sched.MeterDevices+"G"].Tenants
	}
	_, err := c.PlaceGroup(sched.Group{ID: "g", Tenant: "blue", Bundles: []sched.Request{{Devices: 1}}})
	require.NoError(t, err)
	inside := part("inside", 500)
	inside.Group, inside.Tenant = "g", "red"
	place(t, c, inside)
	require.Equal(t, map[string]meter.Quantity{"blue": meter.Over(1000, time.Second)}, devices())

	victim := part("victim", 400)
	victim.Preemptible, victim.Tenant = true, "green"
	place(t, c, victim)
	large := whole("large", 1)
	large.Priority, large.Tenant = 9, "red"
	p, err := c.Preempt(large)
	require.NoError(t, err)
	require.NoError(t, c.Begin(p))
	require.Equal(t, map[string]meter.Quantity{
		"blue": meter.Over(1000, time.Second), "green": meter.Over(400, time.Second), meter.Held: meter.Over(600, time.Second),
	}, devices())
	_, err = c.Complete(p.ID)
	require.NoError(t, err)
	require.Equal(t, map[string]meter.Quantity{"blue": meter.Over(1000, time.Second), "red": meter.Over(1000, time.Second)}, devices())
	_, err = c.RemoveNode("n00")
	require.NoError(t, err)
	_, err = c.RemoveNode("n01")
	require.NoError(t, err)
	require.Empty(t, devices())
}

// TestMeterAgreesWithTheCluster: whatever is done to a cluster, the meter has what its tasks
// had, counted task by task.
func TestMeterAgreesWithTheCluster(t *testing.T) {
	m := meter.New(0)
	w := world{t: t, rng: rand.New(rand.NewPCG(39, 0)), nodes: make(map[string]sched.Node), tasks: make(map[string]sched.Task)}
	w.c = newCluster(t, sched.Config{Meter: m})
	var had, all meter.Quantity
	now := time.Duration(0)
	for range 3000 {
		switch w.rng.IntN(8) {
		case 0:
			w.addNode()
		case 1:
			if len(w.nodes) > 5 {
				w.removeNode()
			}
		case 2:
			w.preempt()
		case 3:
			w.group()
		case 4:
			w.release()
		case 5:
			w.defragment()
		default:
			w.place()
		}
		step := time.Duration(w.rng.IntN(5000)) * time.Millisecond
		now += step
		m.Advance(now)
		for _, task := range w.tasks {
			share := task.Share
			if share == 0 {
				share = sched.Whole
			}
			had = had.Plus(meter.Over(int64(sched.Milli(task.Devices)*share), step))
		}
		for _, n := range w.nodes {
			all = all.Plus(meter.Over(int64(sched.Milli(n.Devices)*sched.Whole), step))
		}
	}
	s := m.Statement()
	requireWhole(t, s)
	a, b := s.Resources[sched.MeterDevices+"A"], s.Resources[sched.MeterDevices+"B"]
	require.Equal(t, had, a.Tenants[""].Plus(b.Tenants[""]))
	require.Equal(t, all, a.Capacity.Plus(b.Capacity))
	require.NotContains(t, a.Tenants, meter.Held)
}
