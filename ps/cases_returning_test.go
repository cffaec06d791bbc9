package ps_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
)

// TestReturningWithoutTheDead: a coordinator that takes over does not wait for a server that
// has ended for certain, and waits for one that merely hangs.
func TestReturningWithoutTheDead(t *testing.T) {
	together(t)
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), patient)
	c.server("s1")
	c.placed()
	hangs, dies := c.process("server", "s2"), c.process("server", "s3")
	eventually(t, "all are there", func() bool { return c.upServer("s2") && c.upServer("s3") })
	require.NoError(t, c.coord.Close())
	hangs.signal(syscall.SIGSTOP)
	dies.kill()
	c.startCoordinator()
	eventually(t, "only the one that hangs is awaited", func() bool { return c.status().Returning == 1 })
	eventually(t, "it was asked more than once", func() bool {
		st := c.status()
		require.Equal(t, 1, st.Returning)
		return st.Uptime > 3*time.Second
	})
	require.Less(t, c.status().Uptime, 10*time.Second, "after that nobody is awaited")
	hangs.signal(syscall.SIGCONT)
	eventually(t, "nobody is awaited", func() bool { return c.status().Returning == 0 })
	require.True(t, c.upServer("s2"))
	require.False(t, c.upServer("s3"))
}

// TestReturningToNodeOfItsName: that a server is not on the coordinator's own node says nothing
// about one that hangs on another node of that name.
func TestReturningToNodeOfItsName(t *testing.T) {
	together(t)
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100), patient)
	hangs := c.process("server", "s1")
	c.placed()
	require.NoError(t, c.coord.Close())
	hangs.signal(syscall.SIGSTOP)
	node, err := actor.Start(c.ctx, actor.Config{Name: "s1", Secret: c.secret, Logger: c.log})
	require.NoError(t, err)
	t.Cleanup(func() { _ = node.Close() })
	c.cfg.Node = node
	c.startCoordinator()
	t.Cleanup(func() { _ = c.coord.Close() })
	c.admin, err = ps.NewAdmin(node, c.ref())
	require.NoError(t, err)
	eventually(t, "it was asked more than once", func() bool {
		st := c.status()
		require.Equal(t, 1, st.Returning)
		return st.Uptime > 2*time.Second
	})
}
