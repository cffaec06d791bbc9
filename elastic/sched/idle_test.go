package sched_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/sched"
)

// TestCase30IdleTimerIsOfTheNode: the timer of a node runs on whatever waits and comes
// elsewhere, and starts again only when that node gets work.
func TestCase30IdleTimerIsOfTheNode(t *testing.T) {
	c := newCluster(t, sched.Config{Nodes: boxes(1, 1, 0)})
	idle := sched.Idle{After: time.Minute}
	at := func(seconds int, waiting ...sched.Task) []string {
		return idle.Expired(c, time.Duration(seconds)*time.Second, waiting)
	}
	place(t, c, sched.Task{ID: "busy", Near: []string{"n02"}})
	for second := 0; second < 60; second += 10 {
		require.Empty(t, at(second, whole(fmt.Sprint("waits", second), 8)), "what waits in vain for a larger node does not count")
		place(t, c, sched.Task{ID: "other", Near: []string{"n02"}})
		require.NoError(t, c.Release("other"))
	}
	require.Equal(t, []string{"n00", "n01"}, at(60, whole("waits", 8)))
	require.Equal(t, []string{"n01"}, at(61, whole("needs one", 1)), "it is kept for who needs it")
	require.Equal(t, []string{"n00", "n01"}, at(62), "and its timer went on meanwhile")

	place(t, c, sched.Task{ID: "brief", Near: []string{"n01"}})
	require.NoError(t, c.Release("brief"))
	require.Equal(t, []string{"n00"}, at(63), "work between two questions")
	require.Empty(t, at(5), "the time went back")
	require.Equal(t, []string{"n00"}, at(122))
	require.Equal(t, []string{"n00", "n01"}, at(123))

	_, err := c.RemoveNode("n00")
	require.NoError(t, err)
	require.NoError(t, c.AddNodes(boxes(1)...))
	require.Equal(t, []string{"n01"}, at(124), "another node of the same name begins anew")
	require.Equal(t, []string{"n00", "n01"}, at(184))
	require.Equal(t, []string{"n00", "n01"}, new(sched.Idle).Expired(c, 0, nil))
}
