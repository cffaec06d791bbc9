package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/internal/leak"
)

// TestMain is also the program of the other ranks.
func TestMain(m *testing.M) {
	if First() {
		os.Exit(m.Run())
	}
	if err := program(context.Background(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// program sums ones over three ranks; with an argument, rank 2 fails instead, with "early"
// before it joins.
func program(ctx context.Context, args []string, stderr *os.File) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if len(args) > 0 && args[0] == "early" && strings.Contains(os.Getenv(variable), `"Rank":2,`) {
		return errors.New("before it joined")
	}
	g, stop, err := Join(ctx, Config{Size: 3, Args: args, Stderr: stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if len(args) > 0 && g.Rank() == 2 {
		return errors.New("as it was told")
	}
	x := []int32{1}
	if err := g.AllReduce(ctx, collective.Of(x), collective.Of(x), collective.Sum); err != nil {
		return err
	}
	if x[0] != 3 {
		return fmt.Errorf("sum %d, want 3", x[0])
	}
	return nil
}

func TestRanks(t *testing.T) {
	leak.Check(t, 20*time.Second)
	require.NoError(t, program(t.Context(), nil, os.Stderr))
}

// A rank that fails is lost to the others, and the first one says that its process failed.
func TestRankThatFails(t *testing.T) {
	leak.Check(t, 20*time.Second)
	said, err := os.Create(t.TempDir() + "/said")
	require.NoError(t, err)
	defer said.Close()
	err = program(t.Context(), []string{"fail"}, said)
	require.ErrorIs(t, err, collective.ErrRankLost)
	require.ErrorContains(t, err, "ranks: rank 2: exit status 1")
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	require.True(t, bytes.Contains(text, []byte("as it was told")), "%s", text)
}

// A rank that fails before it joins, as one whose address was taken meanwhile, ends all of them.
func TestRankThatNeverComes(t *testing.T) {
	leak.Check(t, 20*time.Second)
	begin := time.Now()
	err := program(t.Context(), []string{"early"}, os.Stderr)
	require.ErrorIs(t, err, collective.ErrMissing)
	require.ErrorContains(t, err, "ranks: rank 2: exit status 1")
	require.Less(t, time.Since(begin), startTimeout/2)
}

func TestEndedContextEndsTheRanks(t *testing.T) {
	leak.Check(t, 20*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begin := time.Now()
	_, _, err := Join(ctx, Config{Size: 2, Stderr: os.Stderr})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(begin), 20*time.Second)
}
