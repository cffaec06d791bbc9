package ps_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// TestAdminMistakes: an error says what was asked for and why it was refused, not which call
// carried the request, and keeps its identity.
func TestAdminMistakes(t *testing.T) {
	together(t)
	c := newCluster(t, layersJob(ps.NoReplicas, 2, 100))
	c.server("s1")
	c.placed()
	move := func(id shard.ID, to shard.ServerID) error {
		_, err := c.admin.Move(c.ctx, id, to)
		return err
	}
	checkpoint := func() error {
		_, err := c.admin.Checkpoint(c.ctx, true)
		return err
	}
	for _, m := range []struct {
		err  error
		is   error
		text string
	}{
		{move(0, "s2"), shard.ErrMoveRefused, `ps: move of shard 0 to "s2": shard: move 0 of shard 0 from "s1" to "s2" refused: unknown_server: not among the 1 servers`},
		{move(7, "s1"), shard.ErrMoveRefused, `ps: move of shard 7 to "s1": shard: move 0 of shard 7 from "" to "s1" refused: unknown_shard: the job has 2 shards`},
		{move(0, "s1"), shard.ErrMoveRefused, `ps: move of shard 0 to "s1": shard: move 0 of shard 0 from "s1" to "s1" refused: same_server: source and target are the same`},
		{c.admin.Drain(c.ctx, "s2", true), ps.ErrConflict, `ps: drain of server "s2": conflict: unknown server "s2"`},
		{c.admin.Remove(c.ctx, "s1"), ps.ErrConflict, `ps: removal of server "s1": conflict: server "s1" still owns 2 shards`},
		{checkpoint(), ps.ErrConflict, `ps: checkpoint: conflict: no storage for checkpoints is configured`},
	} {
		require.ErrorIs(t, m.err, m.is)
		require.EqualError(t, m.err, m.text)
	}
	over, cancel := context.WithCancel(c.ctx)
	cancel()
	_, err := c.admin.Move(over, 0, "s1")
	require.ErrorIs(t, err, context.Canceled)
	require.EqualError(t, err, `ps: move of shard 0 to "s1": context canceled`)
	require.NoError(t, c.coord.Close())
	late, end := context.WithTimeout(c.ctx, 200*time.Millisecond)
	defer end()
	err = c.admin.Drain(late, "s1", true)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `ps: drain of server "s1": context deadline exceeded: no answer from ps/coordinator@home: `)
	require.NotContains(t, err.Error(), "actor: call")
}

func TestReportOfNoMove(t *testing.T) {
	require.EqualError(t, ps.MoveReport{}.Err(), "ps: the report of a move that was not begun")
}
