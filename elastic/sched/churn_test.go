package sched_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// churn lets gangs come one after the other on 640 nodes in 10 blocks of 8 racks: of twenty, fifteen
// are one task, four are four nodes of a rack and one is half a block. One that finds no room
// waits until those that run longest have left. It returns how many left.
func churn(tb testing.TB, gangs int) int {
	tb.Helper()
	c := newCluster(tb, sched.Config{Nodes: blocks(10, 8, 8, 8), Levels: []string{"block", "rack"}})
	var running []sched.Gang
	left := 0
	for i := range gangs {
		g := sched.Gang{ID: fmt.Sprint(i)}
		tasks, devices := 1, 2
		switch {
		case i%20 == 0:
			tasks, devices, g.Constraints = 32, 8, []sched.Constraint{{Within: "block"}}
		case i%4 == 0:
			tasks, devices, g.Constraints = 4, 8, []sched.Constraint{{Within: "rack"}}
		}
		for k := range tasks {
			g.Tasks = append(g.Tasks, whole(fmt.Sprint(i, "-", k), devices))
		}
		for {
			_, err := c.PlaceGang(g)
			if err == nil {
				break
			}
			if !errors.Is(err, sched.ErrNoRoom) || len(running) == 0 {
				require.NoError(tb, err, "gang %d of %d tasks", i, tasks)
			}
			for _, t := range running[0].Tasks {
				require.NoError(tb, c.Release(t.ID))
			}
			running, left = running[1:], left+1
		}
		running = append(running, g)
	}
	want := 0
	for _, g := range running {
		want += len(g.Tasks)
		for _, t := range g.Tasks {
			_, err := c.Placement(t.ID)
			require.NoError(tb, err)
		}
	}
	require.Equal(tb, want, c.NumTasks(), "each task once")
	requireSane(tb, c)
	return left
}

func TestChurn(t *testing.T) { require.Greater(t, churn(t, 2000), 1000, "the cluster was full") }

// BenchmarkChurn is 15,000 gangs, the decisions alone: no server, no network, no controller
// of jobs.
func BenchmarkChurn(b *testing.B) {
	const gangs = 15_000
	for b.Loop() {
		churn(b, gangs)
	}
	b.ReportMetric(gangs*float64(b.N)/b.Elapsed().Seconds(), "gangs/s")
}
