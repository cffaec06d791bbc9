package device

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// InventoryConfig says where an Inventory takes devices from.
type InventoryConfig struct {
	// Providers are asked at each refresh. When two report the same device, the earlier
	// one counts and the later one fills in what it does not know. Required: at least one.
	Providers []Provider
	// Timeout is how long a refresh waits for a provider. Zero: 5 s.
	Timeout time.Duration
}

const defaultTimeout = 5 * time.Second

// validate reports every fault of the configuration at once.
func (c InventoryConfig) validate() error {
	var errs []error
	if len(c.Providers) == 0 {
		errs = append(errs, errors.New("device: Providers is empty: want at least 1"))
	}
	for i, p := range c.Providers {
		if p == nil {
			errs = append(errs, fmt.Errorf("device: Providers[%d] is nil", i))
		}
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("device: Timeout %v: want >= 0", c.Timeout))
	}
	return errors.Join(errs...)
}

// Inventory is the list of a host's devices over time, from any number of providers. It
// outlives their faults: a device whose provider fails or hangs stays in the list with
// unknown figures, one that a provider no longer lists is Gone, and comes back as
// itself. It needs no Close. All methods may be called from any goroutine.
type Inventory struct {
	sources []source
	timeout time.Duration

	mu    sync.Mutex
	known []record // in the order of the list
	round uint64   // number of refreshes, the age of what is known
}

// source is one provider and the right to ask it: one question at a time, so that a
// provider that hangs holds one goroutine and not one for each refresh.
type source struct {
	provider Provider
	turn     chan struct{}
}

// answer is what one provider said at one refresh.
type answer struct {
	devices []Device
	err     error // a *ProviderError
}

// NewInventory returns an empty inventory; Refresh fills it. The error names every field
// that is out of bounds.
func NewInventory(c InventoryConfig) (*Inventory, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	i := &Inventory{timeout: c.Timeout}
	if i.timeout == 0 {
		i.timeout = defaultTimeout
	}
	for _, p := range c.Providers {
		i.sources = append(i.sources, source{provider: p, turn: make(chan struct{}, 1)})
	}
	return i, nil
}

// Refresh asks all providers at once and returns the devices, in the order of providers,
// vendors and indexes, those that are gone last. It blocks until all have answered, Timeout has
// passed or ctx ends, and always returns the whole list: the error holds a *ProviderError for each
// provider that did not answer, and the devices of those have unknown figures. A
// provider that is still busy with an earlier refresh is not asked a second time. The
// slice belongs to the caller.
func (i *Inventory) Refresh(ctx context.Context) ([]Device, error) {
	ctx, cancel := context.WithTimeout(ctx, i.timeout)
	defer cancel()
	answers := make([]answer, len(i.sources))
	var asking sync.WaitGroup
	for k, s := range i.sources {
		asking.Go(func() { answers[k] = s.ask(ctx) })
	}
	asking.Wait()
	var errs []error
	for _, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.round++
	i.known = merge(i.known, answers, i.round)
	return devices(i.known), errors.Join(errs...)
}

// Devices returns the list as the last refresh left it, without asking anybody. The
// slice belongs to the caller.
func (i *Inventory) Devices() []Device {
	i.mu.Lock()
	defer i.mu.Unlock()
	return devices(i.known)
}

// ask returns what the provider says until ctx ends. A driver may ignore the end of ctx:
// its goroutine keeps the turn until it returns.
func (s source) ask(ctx context.Context) answer {
	fail := func(err error) answer {
		return answer{err: &ProviderError{Source: s.provider.Source(), Err: err}}
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-s.turn }()
		devices, err := s.provider.Devices(ctx)
		if err != nil {
			done <- fail(err)
			return
		}
		done <- answer{devices: devices}
	}()
	select {
	case a := <-done:
		return a
	case <-ctx.Done():
		return fail(ctx.Err())
	}
}
