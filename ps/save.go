package ps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/shard"
)

// The servers' part of a checkpoint: each writes the shards that it owns, in files of
// bounded size.

const (
	// saveGroupBytes is about how much state goes into one file. The cuts of its shards
	// are taken when it is begun.
	saveGroupBytes = 64 << 20
	// defaultCheckpointMemory bounds the blocks that are copied because they change while
	// a checkpoint is written.
	defaultCheckpointMemory = 1 << 30
)

var errNoStorage = fmt.Errorf("%w: no storage for checkpoints is configured", ErrConflict)

// errNoCheckpoints refuses a server at its start: no checkpoint would come about with it.
var errNoCheckpoints = fmt.Errorf("%w: the job has checkpoints, and ServerConfig.Checkpoints is nil", ErrConflict)

// saving is one checkpoint that this server takes part in.
type saving struct {
	nonce string
	mu    sync.Mutex
	over  bool
	timer *time.Timer
	cuts  map[shard.ID]*cut // taken, and not written yet

	once  sync.Once
	ended chan struct{}
	files []string
	left  []uint32 // shards that are not owned here
	err   error
}

// saving returns the state of a checkpoint by its nonce. Beginning one ends the one
// before; a request of that which comes late finds it over.
func (s *Server) saving(m saveRequest) *saving {
	s.mu.Lock()
	for _, v := range s.saves {
		if v.nonce == m.Nonce {
			s.mu.Unlock()
			return v
		}
	}
	v := &saving{nonce: m.Nonce, cuts: map[shard.ID]*cut{}, ended: make(chan struct{})}
	v.timer = time.AfterFunc(m.Timeout, v.abandon) // nobody may come to write what was armed
	others := slices.Clone(s.saves)
	s.saves = append(s.saves, v)
	s.saves = slices.Delete(s.saves, 0, max(0, len(s.saves)-keptSavings))
	s.mu.Unlock()
	for _, other := range others {
		other.abandon()
	}
	return v
}

// keptSavings is how many checkpoints are remembered.
const keptSavings = 16

// abandon ends the cuts that were not written.
func (v *saving) abandon() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timer.Stop()
	v.over = true
	for _, c := range v.cuts {
		c.end()
	}
	v.cuts = nil // they have the arrays of the shards
}

// keep adds a cut. It reports false if the checkpoint is over.
func (v *saving) keep(c *cut) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.over {
		v.cuts[c.state.ID] = c
		return true
	}
	go c.end() // locks the shard
	return false
}

// cut returns the cut of a shard, nil if it was not taken.
func (v *saving) cut(id uint32) *cut {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cuts[shard.ID(id)]
}

var errSaveOver = fmt.Errorf("%w: the checkpoint is over", ErrConflict)

// arm takes the cuts of shards, all at the beginning of the same clock, and returns those
// that are not owned here.
func (s *Server) arm(req *actor.Request, m saveRequest) {
	v := s.saving(m)
	s.armMu.Lock() // a repeated request waits for the first one
	defer s.armMu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, m.Timeout)
	defer cancel()
	reply := saveReply{}
	parent, err := s.opened(ctx, m.Parent)
	for _, id := range m.Shards {
		if err != nil || v.cut(id) != nil {
			continue
		}
		c, cutErr := s.cutOf(ctx, shard.ID(id), m.Clock, parent)
		switch {
		case errors.Is(cutErr, shard.ErrRefused):
			reply.Left = append(reply.Left, id)
		case cutErr != nil:
			err = cutErr
		case !v.keep(c):
			err = errSaveOver
		}
	}
	if err != nil {
		req.Fail(err)
		return
	}
	req.Reply(reply)
}

// cutOf takes the cut of one shard. The blocks that the parent has as they are are left out.
func (s *Server) cutOf(ctx context.Context, id shard.ID, clock uint32, parent *checkpoint.Checkpoint) (*cut, error) {
	r := s.replica(id)
	if r == nil {
		return nil, fmt.Errorf("%w: there is no copy of shard %d", shard.ErrRefused, id)
	}
	var since uint64
	var epoch shard.Epoch
	if parent != nil {
		state, err := parent.Shard(ctx, id)
		if err != nil {
			return nil, err
		}
		since, epoch = changesIn(state), state.Epoch
	}
	return r.takeCut(clock, since, epoch, s.cutRoom)
}

// save writes shards to files, once, however often it is asked.
func (s *Server) save(req *actor.Request, m saveRequest) {
	v := s.saving(m)
	v.once.Do(func() {
		ctx, cancel := context.WithTimeout(s.ctx, m.Timeout)
		defer cancel()
		v.err = s.write(ctx, v, m)
		v.abandon()
		close(v.ended)
	})
	<-v.ended // bounded by the timeout of the first request
	if v.err != nil {
		req.Fail(v.err)
		return
	}
	req.Reply(saveReply{Files: v.files, Left: v.left})
}

// write writes the files of a checkpoint one after the other.
func (s *Server) write(ctx context.Context, v *saving, m saveRequest) error {
	if s.cfg.Checkpoints == nil {
		return errNoStorage
	}
	parent, err := s.opened(ctx, m.Parent)
	if err != nil {
		return err
	}
	slices.Sort(m.Shards)
	began, written := time.Now(), int64(0)
	paced := func(n int64) {
		written += n
		pace(ctx, m.Rate, float64(written), began)
	}
	for len(m.Shards) > 0 {
		group, rest := s.group(m.Shards)
		m.Shards = rest
		var cuts []*cut
		for _, id := range group {
			c, err := v.cut(id), error(nil)
			if c == nil {
				c, err = s.cutOf(ctx, shard.ID(id), m.Clock, parent)
			}
			switch {
			case errors.Is(err, shard.ErrRefused) && !m.Armed:
				v.left = append(v.left, id)
			case err != nil:
				return err
			case !v.keep(c):
				return errSaveOver
			default:
				cuts = append(cuts, c)
			}
		}
		if len(cuts) == 0 {
			continue
		}
		name := fmt.Sprintf("%s-%s-%d.safetensors", processName(string(s.cfg.ID)), m.Nonce, len(v.files))
		if err := s.writeFile(ctx, m.Name, name, cuts, paced); err != nil {
			return err
		}
		v.files = append(v.files, name)
	}
	return nil
}

// group returns the first shards, as many as go into one file, and the others.
func (s *Server) group(ids []uint32) (group, rest []uint32) {
	size := int64(0)
	for i, id := range ids {
		if r := s.replica(shard.ID(id)); r != nil {
			r.mu.Lock()
			size += r.stateBytes()
			r.mu.Unlock()
		}
		if size > saveGroupBytes && i > 0 {
			return ids[:i], ids[i:]
		}
	}
	return ids, nil
}

// writeFile writes cuts to a file. Paced hears of the bytes and may wait.
func (s *Server) writeFile(ctx context.Context, name, file string, cuts []*cut, paced func(bytes int64)) error {
	states := make([]checkpoint.Shard, len(cuts))
	for i, c := range cuts {
		states[i] = c.state
	}
	_, err := checkpoint.WriteFile(ctx, s.cfg.Checkpoints, name, file, states, func(w *checkpoint.Writer) error {
		for _, c := range cuts {
			if err := c.write(ctx, w, paced); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// opened opens a checkpoint, once; none for an empty name.
func (s *Server) opened(ctx context.Context, name string) (*checkpoint.Checkpoint, error) {
	if name == "" {
		return nil, nil
	}
	if s.cfg.Checkpoints == nil {
		return nil, errNoStorage
	}
	s.mu.Lock()
	c := s.open
	s.mu.Unlock()
	if c != nil && c.Ref().Name == name {
		return c, nil
	}
	c, err := checkpoint.Open(ctx, s.cfg.Checkpoints, name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.open = c
	s.mu.Unlock()
	return c, nil
}

// fill makes this copy the owner's, with the values of a checkpoint, or first ones. They are
// read into a copy that nobody else knows: whoever needs the lock of the shard, as each report
// and each order does, need not wait for the storage.
func (s *Server) fill(ctx context.Context, r *replica, order shard.Effect, from string) error {
	c, err := s.opened(ctx, from)
	if err != nil {
		return err
	}
	if done, err := s.mayFill(r, order, nil); done || err != nil {
		return err
	}
	defer r.isFilled()
	filled := newReplica(s.job, r.spec)
	filled.allocate()
	if c == nil {
		filled.initialize()
	} else if err := filled.restore(ctx, c); err != nil {
		return err
	}
	_, err = s.mayFill(r, order, filled)
	return err
}

// mayFill returns an error unless a copy may be filled for an order, and reports whether it
// is already. If not, it is being filled until isFilled; with the state, that is done here.
func (s *Server) mayFill(r *replica, order shard.Effect, state *replica) (done bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner, err := r.copy.Host(shard.Assignment{Shard: order.Shard, Epoch: order.Epoch, Attempt: order.Attempt})
	switch {
	case err != nil || owner == r.copy:
		return err == nil, err
	case s.ctx.Err() != nil || s.out.Load(): // drop was here, or is about to be
		return false, fmt.Errorf("%w: server %q", ErrClosed, s.cfg.ID)
	}
	if state == nil {
		r.filling++
		return false, nil
	}
	r.adopt(state)
	r.become(owner)
	return false, nil
}

// isFilled takes note that an order to fill this copy has been carried out, or has failed.
func (r *replica) isFilled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filling--
}
