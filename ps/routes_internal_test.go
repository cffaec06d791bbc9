package ps

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// TestT13RoutesNeverGoBack gives a client late news of an owner, from everybody who may
// have some: servers, announcements and answers of the coordinator.
func TestT13RoutesNeverGoBack(t *testing.T) {
	r := newRoutes(nil, nil, 2)
	r.learn(routesChanged{Shard: 1, Epoch: 5, To: serverInfo{ID: "now"}})
	version := r.version.Load()
	require.Positive(t, version)
	r.moved(1, owner{"before", 4})
	r.moved(1, owner{"same", 5})
	r.learn(routesChanged{Shard: 1, Epoch: 4, To: serverInfo{ID: "before"}})
	r.learn(routesChanged{Shard: 2, Epoch: 9, To: serverInfo{ID: "beyond"}})
	require.Equal(t, version, r.version.Load())
	r.take(0, routesReply{Servers: []serverInfo{{ID: "before"}}, Owners: []uint16{1, 1}, Epochs: []uint64{4, 4}})
	o, _, err := r.of(1)
	require.NoError(t, err)
	require.Equal(t, owner{"now", 5}, o)
	o, _, err = r.of(0) // that was news
	require.NoError(t, err)
	require.Equal(t, owner{"before", 4}, o)
	r.moved(1, owner{"next", 6})
	require.Equal(t, shard.Epoch(6), r.epoch(1))
	r.prune() // who owns nothing any more is forgotten
	require.Len(t, r.servers, 1)
	require.Contains(t, r.servers, shard.ServerID("before"))
}
