package ps_test

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/ps/checkpoint"
)

// heldStorage is a storage whose lists wait while hold is not nil.
type heldStorage struct {
	checkpoint.Folder
	mu      sync.Mutex
	hold    chan struct{}
	reached func()
}

func (s *heldStorage) List(ctx context.Context, prefix string) ([]checkpoint.Object, error) {
	s.mu.Lock()
	hold, reached := s.hold, s.reached
	s.mu.Unlock()
	if hold != nil {
		reached()
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	return s.Folder.List(ctx, prefix)
}

// TestPromotedFollowerHangsForAMoment: the owner is killed and its follower, which takes over,
// hangs just then, and does not hear that it is to serve. It goes on while the coordinator looks for a checkpoint; it has every
// acknowledged push, and the shard goes back to none.
func TestPromotedFollowerHangsForAMoment(t *testing.T) {
	together(t)
	held := &heldStorage{Folder: checkpoint.Folder(t.TempDir())}
	c, w, having := bereftIn(t, held, func(*cluster) {}, "s2", "s3")
	c.process("server", "s1") // the first that a shard would be given to
	looks := make(chan struct{})
	held.mu.Lock()
	held.hold, held.reached = make(chan struct{}), sync.OnceFunc(func() { close(looks) })
	held.mu.Unlock()
	unheard := func(_ actor.Ref, msg any) bool { return ps.OrderOf(msg) == "activate" }
	c.drop.Store(&unheard)
	having["follower"].signal(syscall.SIGSTOP)
	having["owner"].kill()
	select {
	case <-looks:
	case <-c.ctx.Done():
		t.Fatal("no checkpoint is looked for")
	}
	having["follower"].signal(syscall.SIGCONT)
	eventually(t, "the follower is back", func() bool {
		up := 0
		for _, s := range c.status().Servers {
			if s.Up {
				up++
			}
		}
		return up == 2
	})
	held.mu.Lock()
	close(held.hold)
	held.hold = nil
	held.mu.Unlock()
	require.Never(t, func() bool { return refilled(c.status()) > 0 }, time.Second, 20*time.Millisecond)
	c.drop.Store(nil)
	pushOften(c, w, 3)
	hasPushes(c, w, 15)
}

// TestOwnerIsBackBeforeItsFollower: an owner is started again, and has nothing, while its
// follower is silent and a coordinator has just begun. The follower takes over when it goes on.
func TestOwnerIsBackBeforeItsFollower(t *testing.T) {
	together(t)
	c, w, having := bereft(t, "s1", "s2")
	owner := c.owner(0)
	require.NoError(t, c.coord.Close())
	having["follower"].signal(syscall.SIGSTOP)
	having["owner"].kill()
	c.startCoordinator()
	c.process("server", string(owner))
	require.Never(t, func() bool { return refilled(c.status()) > 0 }, 2*time.Second, 50*time.Millisecond)
	having["follower"].signal(syscall.SIGCONT)
	pushOften(c, w, 3)
	hasPushes(c, w, 15)
}

// TestAllServersAreStartedAgain: nothing has outlived a power failure but the store and the
// checkpoints. All shards go back to the last one, in whatever order the servers come.
func TestAllServersAreStartedAgain(t *testing.T) {
	for _, order := range [][]string{{"s1", "s2"}, {"s2", "s1"}} {
		t.Run(order[0], func(t *testing.T) {
			settled(t)
			c, w, having := bereft(t, "s1", "s2")
			require.NoError(t, w.Close())
			require.NoError(t, c.coord.Close())
			for _, p := range having {
				p.kill()
			}
			c.startCoordinator()
			for _, name := range order {
				c.process("server", name)
			}
			goesBack(c, c.client("x"))
		})
	}
}
