package elastic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/federation"
	"github.com/elasticps/elasticps/shard/store"
)

// HomeConfig is what the Home of a federation needs.
type HomeConfig struct {
	// Name is the name of the actor and of the federation in Store. Zero: "elastic.federation".
	Name string
	// Store keeps the jobs, and elects the Home among those that were started. Required.
	Store store.Store
	// Federation is the same for Home and all sites.
	Federation federation.Config
	// LeaseTTL is how long after a Home has died another one takes its place. Less than
	// Federation.Lease without its Grace, or no job lives through it. Zero: 3 s.
	LeaseTTL time.Duration
	// Logger gets a line when a Home begins and ends. Zero: nothing is logged.
	Logger *slog.Logger
}

const minHomeLeaseTTL = 100 * time.Millisecond

func (c HomeConfig) withDefaults() (HomeConfig, error) {
	c.Name = cmp.Or(c.Name, "elastic.federation")
	c.LeaseTTL = cmp.Or(c.LeaseTTL, 3*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	c.Federation, err = c.Federation.WithDefaults()
	if c.Store == nil {
		err = errors.Join(err, errors.New("elastic: HomeConfig.Store is nil"))
	}
	if c.LeaseTTL < minHomeLeaseTTL || c.LeaseTTL > store.MaxLeaseTTL {
		err = errors.Join(err, fmt.Errorf("elastic: HomeConfig.LeaseTTL %v: want %v to %v", c.LeaseTTL, minHomeLeaseTTL, store.MaxLeaseTTL))
	}
	return c, err
}

// Home is the actor that gives the jobs of a federation to its sites. All that it decides is in
// federation.Home; what has to be remembered is in the store before anybody is told.
type Home struct {
	config HomeConfig
	node   *actor.Node
	ref    actor.Ref
	lease  *homeLease
	home   *federation.Home    // of the actor, as is what follows
	saved  map[string]document // by job
	jobs   map[uint64]string   // by the epoch at which they were given last

	end     context.CancelFunc
	keeping sync.WaitGroup
	done    chan struct{}
	once    sync.Once
	err     error // why it is none any more
}

// document is a record as the store has it.
type document struct {
	record   federation.Record
	job      []byte
	revision store.Revision
}

// StartHome waits until no other Home of that name leads, by Store, and begins with the jobs that
// its predecessor has left. It returns when ctx ends, or when its actor runs; then it leads until
// Done. Every program that may be Home calls it, and again after Done and Close. A store that cannot
// be reached, or answers late, is asked again until ctx ends.
func StartHome(ctx context.Context, node *actor.Node, c HomeConfig) (*Home, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := registerFederation(node); err != nil {
		return nil, fmt.Errorf("elastic: start home: %w", err)
	}
	for {
		lease, err := campaign(ctx, c, c.Name+"/home", node.Name())
		if err != nil {
			return nil, fmt.Errorf("elastic: start home: %w", err)
		}
		h := &Home{
			config: c, node: node, ref: node.Ref(c.Name), lease: lease, done: make(chan struct{}),
			saved: make(map[string]document), jobs: make(map[uint64]string),
		}
		if err = h.begin(ctx); err == nil {
			return h, nil
		}
		lease.resign()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) { // of the lease
			return nil, fmt.Errorf("elastic: start home: %w", err)
		}
	}
}

func (h *Home) begin(ctx context.Context) error {
	leased, cancel := context.WithTimeout(ctx, max(h.lease.left(), time.Millisecond))
	defer cancel()
	records, err := h.load(leased)
	if err != nil {
		return err
	}
	if h.home, err = federation.NewHome(h.config.Federation, h.lease.term, h.now(), records); err != nil {
		return err
	}
	h.config.Logger.Info("[Federation] Home", "node", h.node.Name(), "term", h.lease.term, "jobs", len(records))
	keeping, end := context.WithCancel(context.Background())
	h.end = end
	if _, err := h.node.Spawn(ctx, h.config.Name, actor.ActorFunc(h.handle), actor.Options{}); err != nil {
		end()
		return err
	}
	h.keeping.Go(func() { h.depose(h.lease.keep(keeping)) })
	return nil
}

// load reads the records, each of which gets a new revision first: what a predecessor that does not
// know yet that it is none has under way fails then, and it sends nothing.
func (h *Home) load(ctx context.Context) ([]federation.Record, error) {
	for {
		entries, err := h.config.Store.List(ctx, h.config.Name+"/job/")
		if err != nil {
			return nil, err
		}
		var records []federation.Record
		for _, e := range entries {
			var r federation.Record
			if err := json.Unmarshal(e.Value, &r); err != nil {
				return nil, fmt.Errorf("elastic: key %q of the store is no job of a federation: %w", e.Key, err)
			}
			if e.Revision, err = h.config.Store.CompareAndSwap(ctx, e.Key, e.Revision, e.Value); err != nil {
				break
			}
			if err := h.note(r, e.Revision); err != nil {
				return nil, err
			}
			records = append(records, r)
		}
		if err == nil {
			return records, nil
		}
		if !errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return nil, err
		}
	}
}

// note remembers what the store has.
func (h *Home) note(r federation.Record, revision store.Revision) error {
	job, err := json.Marshal(r.Job)
	if err != nil {
		return fmt.Errorf("elastic: job %q: %w", r.Job.ID, err)
	}
	delete(h.jobs, h.saved[r.Job.ID].record.Epoch)
	if r.Over {
		delete(h.saved, r.Job.ID)
		return nil
	}
	h.saved[r.Job.ID] = document{r, job, revision}
	if r.Site != "" {
		h.jobs[r.Epoch] = r.Job.ID
	}
	return nil
}

// Ref returns the address of this Home, for sites and clients.
func (h *Home) Ref() actor.Ref { return h.ref }

// Done returns a channel that is closed when the Home leads no more. Call Close then.
func (h *Home) Done() <-chan struct{} { return h.done }

// Err returns the reason why the Home leads no more, nil before Done is closed.
func (h *Home) Err() error {
	select {
	case <-h.done:
		return h.err
	default:
		return nil
	}
}

// Close ends it, and lets another take its place at once. Jobs go on where they are.
func (h *Home) Close() error {
	h.depose(actor.ErrClosed)
	h.keeping.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := h.node.Stop(ctx, h.ref)
	h.lease.resign()
	if err != nil && !errors.Is(err, actor.ErrNoProcess) && !errors.Is(err, actor.ErrClosed) {
		return fmt.Errorf("elastic: stop home: %w", err)
	}
	return nil
}

// depose ends the leadership, once.
func (h *Home) depose(err error) {
	h.once.Do(func() {
		h.end()
		h.lease.until.Store(0)
		h.err = err
		h.config.Logger.Info("[Federation] Home no more", "node", h.node.Name(), "term", h.lease.term, "err", err)
		close(h.done)
	})
}

// now is the time of this Home.
func (h *Home) now() time.Duration { return time.Since(h.lease.began) }

// handle answers one message.
func (h *Home) handle(c *actor.Context, msg any) error {
	left := h.lease.left()
	if left <= 0 {
		c.Fail(ErrNotHome)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	answer, err := h.answer(ctx, msg)
	switch {
	case err != nil:
		c.Fail(err)
	case h.lease.left() <= 0: // it may have taken long to save
		c.Fail(ErrNotHome)
	default:
		c.Reply(answer)
	}
	return nil
}

func (h *Home) answer(ctx context.Context, msg any) (any, error) {
	switch m := msg.(type) {
	case siteReport:
		report, err := m.report(h.jobs)
		if err != nil {
			return nil, err
		}
		order, records, ok := h.home.Answer(h.now(), report)
		if !ok {
			return siteOrder{}, nil
		}
		return orderMessage(order), h.save(ctx, records...)
	case submitRequest:
		return nil, h.submit(ctx, m.Job)
	case cancelRequest:
		r, err := h.home.Cancel(m.Job)
		if errors.Is(err, federation.ErrUnknown) {
			return nil, nil // it may have been cancelled before
		}
		if err != nil {
			return nil, err
		}
		return nil, h.save(ctx, r)
	case whereRequest:
		return h.home.Where(h.now(), m.Job)
	}
	return nil, fmt.Errorf("elastic: home of a federation: %w: %T", actor.ErrUnknownType, msg)
}

// submit takes a job. One that is known, and the same, was taken by an earlier request.
func (h *Home) submit(ctx context.Context, j federation.Job) error {
	text, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("elastic: job %.64q: %w", j.ID, err)
	}
	if len(text) > maxJobBytes || len(j.ID) > maxJobIDBytes {
		return fmt.Errorf("elastic: job %.64q of %d bytes as JSON, %d of its ID: want at most %d, %d",
			j.ID, len(text), len(j.ID), maxJobBytes, maxJobIDBytes)
	}
	if d, ok := h.saved[j.ID]; ok && bytes.Equal(d.job, text) && !d.record.Cancelled {
		return nil
	}
	r, err := h.home.Submit(j)
	if err != nil {
		return err
	}
	return h.save(ctx, r)
}

// save writes records. If that fails nobody knows what the store has, so another Home, or this
// one anew, has to read it.
func (h *Home) save(ctx context.Context, records ...federation.Record) error {
	for _, r := range records {
		var value []byte
		var err error
		if !r.Over {
			if value, err = json.Marshal(r); err != nil {
				return fmt.Errorf("elastic: job %q: %w", r.Job.ID, err)
			}
		}
		key := h.config.Name + "/job/" + url.PathEscape(r.Job.ID) + "."
		revision, err := h.config.Store.CompareAndSwap(ctx, key, h.saved[r.Job.ID].revision, value)
		if err == nil {
			err = h.note(r, revision)
		}
		if err != nil {
			err = fmt.Errorf("%w: save job %q: %w", ErrNotHome, r.Job.ID, err)
			h.depose(err)
			return err
		}
	}
	return nil
}
