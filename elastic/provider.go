package elastic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/elasticps/elasticps/shard"
)

// Errors of providers; test with errors.Is.
var (
	// ErrServerExists means that the provider runs a server of that name already.
	ErrServerExists = errors.New("elastic: server exists")
	// ErrUnknownServer means that the provider did not start a server of that name.
	ErrUnknownServer = errors.New("elastic: unknown server")
	// ErrProviderClosed means that the provider was closed.
	ErrProviderClosed = errors.New("elastic: provider closed")
)

// Provider starts and stops the places on which servers run. Both methods may be
// called from any goroutine and return by the end of ctx.
type Provider interface {
	// Start brings up a server that joins the job under that name. It may
	// return before the server has joined. After an error nothing runs.
	Start(ctx context.Context, id shard.ServerID) error
	// Stop ends a server that Start brought up and frees all that it held. It
	// fails with ErrUnknownServer if there is none.
	Stop(ctx context.Context, id shard.ServerID) error
}

// InProcess is the provider whose servers run in this process.
type InProcess struct {
	open func(ctx context.Context, id shard.ServerID) (io.Closer, error)

	mu      sync.Mutex
	closed  bool
	running map[shard.ServerID]io.Closer // nil while it starts
}

var _ Provider = (*InProcess)(nil)

// NewInProcess returns a provider that opens a server by calling open and stops it
// by closing what open returned. open may be called from several goroutines, for
// different names. The servers' life must not depend on the context of open.
func NewInProcess(open func(ctx context.Context, id shard.ServerID) (io.Closer, error)) *InProcess {
	return &InProcess{open: open, running: make(map[shard.ServerID]io.Closer)}
}

// Start opens the server. It blocks as long as the function does. A name that is in
// use fails with ErrServerExists, a closed provider with ErrProviderClosed.
func (p *InProcess) Start(ctx context.Context, id shard.ServerID) error {
	if err := p.reserve(id); err != nil {
		return err
	}
	server, err := p.open(ctx, id)
	if err == nil && server == nil {
		err = errors.New("the function returned no server")
	}
	p.mu.Lock()
	delete(p.running, id)
	closed := p.closed
	if err == nil && !closed {
		p.running[id] = server
	}
	p.mu.Unlock()
	if err == nil && closed {
		err = errors.Join(ErrProviderClosed, server.Close())
	}
	if err != nil {
		return fmt.Errorf("elastic: start server %q: %w", id, err)
	}
	return nil
}

func (p *InProcess) reserve(id shard.ServerID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: start server %q", ErrProviderClosed, id)
	}
	if _, ok := p.running[id]; ok {
		return fmt.Errorf("%w: %q", ErrServerExists, id)
	}
	p.running[id] = nil
	return nil
}

// Stop closes the server. If ctx ends first it returns its error while the server
// goes on closing.
func (p *InProcess) Stop(ctx context.Context, id shard.ServerID) error {
	p.mu.Lock()
	server := p.running[id]
	if server != nil {
		delete(p.running, id)
	}
	p.mu.Unlock()
	if server == nil {
		return fmt.Errorf("%w: %q", ErrUnknownServer, id)
	}
	done := make(chan error, 1)
	go func() { done <- server.Close() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("elastic: stop server %q: %w", id, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("elastic: stop server %q: %w", id, ctx.Err())
	}
}

// Close closes all servers that run, in the order of their names, and returns their
// errors joined. A server that starts meanwhile is closed when it has started. A
// second Close does nothing.
func (p *InProcess) Close() error {
	p.mu.Lock()
	p.closed = true
	running := p.running
	p.running = make(map[shard.ServerID]io.Closer)
	p.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(running)) {
		if server := running[id]; server != nil {
			if err := server.Close(); err != nil {
				errs = append(errs, fmt.Errorf("elastic: stop server %q: %w", id, err))
			}
		}
	}
	return errors.Join(errs...)
}
