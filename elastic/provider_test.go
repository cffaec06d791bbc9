package elastic

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

type closer func() error

func (c closer) Close() error { return c() }

func TestInProcess(t *testing.T) {
	var mu sync.Mutex
	open := map[shard.ServerID]bool{}
	fail := errors.New("no more memory")
	p := NewInProcess(func(ctx context.Context, id shard.ServerID) (io.Closer, error) {
		if id == "bad" {
			return nil, fail
		}
		mu.Lock()
		defer mu.Unlock()
		open[id] = true
		return closer(func() error {
			mu.Lock()
			defer mu.Unlock()
			delete(open, id)
			return nil
		}), nil
	})
	ctx := deadline(t)
	require.NoError(t, p.Start(ctx, "a"))
	require.NoError(t, p.Start(ctx, "b"))
	require.ErrorIs(t, p.Start(ctx, "a"), ErrServerExists)
	require.ErrorIs(t, p.Start(ctx, "bad"), fail)
	require.ErrorIs(t, p.Stop(ctx, "bad"), ErrUnknownServer)
	require.NoError(t, p.Stop(ctx, "a"))
	require.ErrorIs(t, p.Stop(ctx, "a"), ErrUnknownServer)
	require.Equal(t, map[shard.ServerID]bool{"b": true}, open)
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.Empty(t, open)
	require.ErrorIs(t, p.Start(ctx, "c"), ErrProviderClosed)
}

func TestInProcessClosedWhileAServerStarts(t *testing.T) {
	starting, goOn := make(chan struct{}), make(chan struct{})
	closed := make(chan struct{})
	p := NewInProcess(func(context.Context, shard.ServerID) (io.Closer, error) {
		close(starting)
		<-goOn
		return closer(func() error { close(closed); return nil }), nil
	})
	result := make(chan error, 1)
	go func() { result <- p.Start(context.Background(), "a") }()
	<-starting
	require.NoError(t, p.Close())
	close(goOn)
	require.ErrorIs(t, <-result, ErrProviderClosed)
	<-closed
}

func TestInProcessStopEndsWithItsContext(t *testing.T) {
	goOn := make(chan struct{})
	defer close(goOn)
	p := NewInProcess(func(context.Context, shard.ServerID) (io.Closer, error) {
		return closer(func() error { <-goOn; return nil }), nil
	})
	require.NoError(t, p.Start(context.Background(), "a"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, p.Stop(ctx, "a"), context.Canceled)
}
