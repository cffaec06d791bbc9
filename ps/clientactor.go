package ps

import (
	"context"
	"errors"

	"github.com/elasticps/elasticps/actor"
)

// clientActor is the control side of a Client.
type clientActor struct{ c *Client }

// Started begins the reports and watches the coordinator.
func (a *clientActor) Started(c *actor.Context) error {
	c.SendAfter(a.c.cfg.ReportInterval, reportNow{})
	return c.Monitor(a.c.coordinator.current())
}

// Receive handles one control message.
func (a *clientActor) Receive(ctx *actor.Context, msg any) error {
	c := a.c
	switch m := msg.(type) {
	case routesChanged:
		c.routes.learn(m)
	case aliveRequest:
		ctx.Reply(done{})
	case reportNow:
		c.report(ctx.Node())
		if c.stats.forget() {
			c.routes.version.Add(1) // the paths are looked up again
		}
		ctx.SendAfter(c.cfg.ReportInterval, reportNow{})
	case reportEarly:
		c.report(ctx.Node())
	case actor.Down:
		go c.rejoin(ctx)
	}
	return nil
}

// rejoin tells a coordinator that comes back who is here.
func (c *Client) rejoin(actx *actor.Context) {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, joinTimeout)
		_, from, err := c.join(ctx)
		cancel()
		if err == nil {
			_ = actx.Monitor(from) // a failure shows as another Down
			return
		}
		if errors.Is(err, ErrNotMember) {
			c.cfg.Logger.Warn("client is no member any more", "client", c.cfg.Name, "err", err)
			return
		}
		sleep(c.ctx, rejoinPause)
	}
}

// report tells the coordinator what the client has seen.
func (c *Client) report(n *actor.Node) {
	inc := c.incarnation.Load()
	if inc == 0 {
		return
	}
	m := workerReport{Incarnation: inc, Load: c.stats.load(), Unreached: c.stats.unreached()}
	_ = n.TryCast(c.coordinator.current(), m) // the next one follows
}
