package ps_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// serverOver starts a server that clients of other nodes reach over "unix" or "tcp",
// or that only its own node does, "local".
func (c *cluster) serverOver(id shard.ServerID, network string) *ps.Server {
	c.t.Helper()
	return c.serverWith(id, func(cfg *ps.ServerConfig) {
		switch network {
		case "local":
			cfg.Listen = ps.ListenNone
		case "tcp": // a server that advertises an address has no unix socket
			cfg.Listen = freeAddr(c.t)
			cfg.Advertise = cfg.Listen
		}
	})
}

// freeAddr is a loopback address with a port that nobody listens on, also for a process that is
// started again and again: on Linux no other test uses that address at all.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
