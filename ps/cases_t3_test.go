package ps_test

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// T3, port reuse, for the data plane.

// through starts a server of that address, pushes through its TCP port, and stops it.
func (c *cluster) through(id shard.ServerID, listen, advertise string, want float32) {
	t := c.t
	t.Helper()
	s, err := ps.StartServer(c.ctx, ps.ServerConfig{
		Node: c.home, ID: id, Coordinator: c.ref(), Listen: listen, Advertise: advertise, AllowInsecure: true, Logger: c.log,
	})
	require.NoError(t, err, listen)
	nc, err := net.Dial("tcp", s.DataAddr())
	require.NoError(t, err, listen)
	require.NoError(t, nc.Close())
	w := c.worker("w-" + string(id))
	require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
	c.requireValue(w, want)
	require.NoError(t, w.Close())
	require.NoError(t, s.Shutdown(c.ctx))
	_, err = net.Dial("tcp", s.DataAddr())
	require.Error(t, err, "nothing listens any more")
}

func TestT3PortReuse(t *testing.T) {
	settled(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	for range 10 {
		c := newCluster(t, smallJob(ps.Consistency{}))
		c.through("s1", addr, addr, 1)
		require.NoError(t, c.coord.Close())
		require.NoError(t, c.home.Close())
	}
}

func TestT3Addresses(t *testing.T) {
	settled(t)
	hosts := []string{"localhost", "127.0.0.1", "[::1]", ""}
	if name, err := os.Hostname(); err == nil {
		if _, err := net.LookupHost(name); err == nil {
			hosts = append(hosts, name)
		}
	}
	for _, host := range hosts {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			continue // no IPv6 here, for example
		}
		require.NoError(t, l.Close())
		c := newCluster(t, smallJob(ps.Consistency{}))
		c.through("s1", host+":0", "", 1)
	}
	c := newCluster(t, smallJob(ps.Consistency{}))
	c.through("s1", "", "", 1)
}

func TestT3PortInUse(t *testing.T) {
	settled(t)
	c := newCluster(t, smallJob(ps.Consistency{}))
	taken := c.server("s1")
	_, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: c.home, ID: "s2", Coordinator: c.ref(), Listen: taken.DataAddr()})
	require.ErrorIs(t, err, ps.ErrConflict)
	require.ErrorContains(t, err, taken.DataAddr())
	require.ErrorContains(t, err, `"s2"`)
	for _, bad := range []string{"nowhere", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1", "0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"} {
		_, err := ps.StartServer(c.ctx, ps.ServerConfig{Node: c.home, ID: "s2", Coordinator: c.ref(), Listen: bad})
		require.ErrorContains(t, err, bad)
	}
	w := c.worker("w")
	require.NoError(t, w.Push(c.ctx, "a", vector(smallElems, -1)))
	c.server("s2")
	c.move(0, "s2")
	c.requireValue(w, 1)
}
