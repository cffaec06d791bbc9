package ps

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// linkKey names a connection: a run of a server, and which of the connections
// to it.
type linkKey struct {
	run  uint64
	lane uint8
}

// smallLane is the lane of small requests; large ones go over the others.
const smallLane = 0

// path is the way of the requests for one shard, found once and used while the routes
// stay as they are.
type path struct {
	version uint64 // of the routes
	epoch   shard.Epoch
	info    *serverInfo
	load    *latencies // of the server
	server  *Server    // on the same node, or
	link    *link
}

// lanes are the paths of one shard: of small requests and of large ones.
type lanes [2]atomic.Pointer[path]

func (p *path) usable(version uint64) bool {
	switch {
	case p == nil || p.version != version:
		return false
	case p.server != nil:
		return p.server.ctx.Err() == nil
	}
	return !p.link.down.Load()
}

// aim finds out where a call goes: to a server in this process, or over a connection.
func (c *Client) aim(ctx context.Context, k *call) (*path, error) {
	k.err, k.link, k.ctx, k.text, k.out = nil, nil, ctx, "", outcome{}
	lane := 1
	if max(4*len(k.values), 8*len(k.ids)) <= smallBytes {
		lane = smallLane
	}
	cached := &c.paths[k.header.Shard][lane]
	p, version := cached.Load(), c.routes.version.Load()
	if !p.usable(version) {
		var err error
		if p, err = c.find(ctx, k, lane, version); err != nil {
			return nil, err
		}
		cached.Store(p)
	}
	k.header.Epoch, k.server, k.load = uint64(p.epoch), p.info, p.load
	if c.observer {
		k.header.Clock = c.clockNow() // it may have advanced since the last attempt
	}
	if k.seqs != nil {
		k.header.Floor = k.seqs.low()
	}
	return p, nil
}

// find looks a path up, and connects if it has to.
func (c *Client) find(ctx context.Context, k *call, lane int, version uint64) (*path, error) {
	o, info, err := c.routes.of(shard.ID(k.header.Shard))
	k.header.Epoch, k.server = uint64(o.epoch), &info
	if err != nil {
		return nil, err
	}
	key := linkKey{info.Run, uint8(lane)}
	if lane != smallLane {
		key.lane += uint8(k.header.Shard % uint32(c.cfg.Streams))
	}
	p := &path{version: version, epoch: o.epoch, info: &info, load: c.stats.of(info.ID)}
	p.server, p.link, err = c.reach(ctx, info, key)
	return p, err
}

// reach returns the server itself if it is on the same node, else a connection to it,
// which is opened if there is none.
func (c *Client) reach(ctx context.Context, info serverInfo, key linkKey) (*Server, *link, error) {
	c.mu.Lock()
	s, l := c.locals[info.Run], c.links[key]
	c.mu.Unlock()
	if s != nil {
		if s.ctx.Err() == nil {
			return s, nil, nil
		}
		return nil, nil, fmt.Errorf("%w: server %q is closed", ErrUnavailable, info.ID)
	}
	if l != nil && l.conn.Err() == nil {
		return nil, l, nil
	}
	if s = localServer(ctx, c.cfg.Node, info); s != nil {
		c.mu.Lock()
		maps.DeleteFunc(c.locals, func(_ uint64, old *Server) bool { return old.ctx.Err() != nil })
		c.locals[info.Run] = s
		c.mu.Unlock()
		return s, nil, nil
	}
	l, err := c.connect(ctx, info, key)
	return nil, l, err
}

// dialing is a connection that is being made; everybody else who needs it waits.
type dialing struct {
	ended chan struct{}
	err   error // why there is no connection, unless whoever dialled gave up
}

// connect returns the connection to a server. One goroutine at a time dials: many
// operations that begin at once must not look like an attack to the server.
func (c *Client) connect(ctx context.Context, info serverInfo, key linkKey) (*link, error) {
	for {
		c.mu.Lock()
		if l := c.links[key]; l != nil && l.conn.Err() == nil {
			c.mu.Unlock()
			return l, nil
		}
		d := c.dials[key]
		if d == nil {
			d = &dialing{ended: make(chan struct{})}
			c.dials[key] = d
			c.mu.Unlock()
			for _, l := range c.appendLinks(nil) {
				l.probe() // servers that have gone, perhaps
			}
			return c.dial(ctx, info, key, d)
		}
		c.mu.Unlock()
		select {
		case <-d.ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if d.err != nil {
			return nil, d.err
		}
	}
}

func (c *Client) dial(ctx context.Context, info serverInfo, key linkKey, d *dialing) (*link, error) {
	conn, err := dial(ctx, info, c.cfg.TLS, stream.Config{BufferBytes: frameBuffer, ReadAhead: wire.HeaderBytes})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dials, key)
	defer close(d.ended)
	if err != nil {
		if ctx.Err() == nil {
			d.err = err
		}
		return nil, err
	}
	l := newLink(conn, maxSlots, c.busy)
	maps.DeleteFunc(c.links, func(_ linkKey, old *link) bool { return old.conn.Err() != nil })
	c.links[key] = l
	if c.ctx.Err() != nil {
		_ = conn.CloseWithError(ErrClosed) // the client closed meanwhile
	}
	return l, nil
}
