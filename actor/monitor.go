package actor

import (
	"fmt"
	"time"

	"github.com/ergo-services/ergo/etf"
	"github.com/ergo-services/ergo/gen"
	"github.com/ergo-services/ergo/lib"
	"github.com/ergo-services/ergo/node"
)

// ergo's monitors by name cross nodes. The watching process is always the system
// process of its node, so a frame carries its id only.

// MonitorReg tells the peer that a process here watches one there. Like all that ergo
// calls here it must not block: ergo holds locks meanwhile.
func (c *conn) MonitorReg(local etf.Pid, remote gen.ProcessID, ref etf.Ref) error {
	if err := c.failed(); err != nil {
		return lib.ErrNoRoute
	}
	c.outbox.build(c, kindMonitor, func(e *encoder) {
		e.uint(local.ID)
		e.name(remote.Name)
		e.ref(refFields{ref.Creation, ref.ID})
	})
	return nil
}

// DemonitorReg undoes MonitorReg.
func (c *conn) DemonitorReg(local etf.Pid, remote gen.ProcessID, ref etf.Ref) error {
	c.outbox.build(c, kindDemonitor, func(e *encoder) {
		e.uint(local.ID)
		e.name(remote.Name)
		e.ref(refFields{ref.Creation, ref.ID})
	})
	return nil
}

// MonitorExitReg tells the peer that a process which it watches has ended.
func (c *conn) MonitorExitReg(_ etf.Pid, terminated gen.ProcessID, reason string, ref etf.Ref) error {
	fields := refFields{ref.Creation, ref.ID}
	c.outbox.build(c, kindMonitorExit, func(e *encoder) {
		e.name(terminated.Name)
		e.str(reason)
		e.ref(fields)
	})
	c.monMu.Lock()
	delete(c.monitors, fields)
	c.monMu.Unlock()
	select {
	case c.told <- struct{}{}:
	default:
	}
	return nil
}

// newsWait bounds how long a node that closes waits for the news of its processes.
const newsWait = 500 * time.Millisecond

// awaitNews returns when the peer has been told about all processes here that it watches.
// They have ended; ergo sees to the news a little later.
func (c *conn) awaitNews() {
	timer := time.NewTimer(newsWait)
	defer timer.Stop()
	for {
		c.monMu.Lock()
		left := len(c.monitors)
		c.monMu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-c.told:
		case <-timer.C: // a process that does not end
			return
		case <-c.done:
			return
		}
	}
}

func (c *conn) onMonitor(k kind, body []byte) error {
	m, err := parseMonitor(k, body)
	if err != nil {
		return err
	}
	if k == kindMonitorExit {
		self := c.n.system.proc.Self()
		ref := etf.Ref{Node: self.Node, Creation: m.ref.creation, ID: m.ref.id}
		// Under signals: ergo enters a monitor only after it has asked the peer, and
		// would not find it if the answer came in between.
		c.n.signals.Lock()
		defer c.n.signals.Unlock()
		_ = c.n.system.router.RouteMonitorExitReg(gen.ProcessID{Name: string(m.name), Node: ergoName(c.peer)}, m.text, ref)
		return nil
	}
	by := etf.Pid{Node: etf.Atom(ergoName(c.peer)), ID: m.by, Creation: m.ref.creation}
	ref := etf.Ref{Node: by.Node, Creation: m.ref.creation, ID: m.ref.id}
	if k == kindDemonitor {
		c.monMu.Lock()
		delete(c.monitors, m.ref)
		c.monMu.Unlock()
		c.n.signals.Lock()
		defer c.n.signals.Unlock()
		_ = c.n.system.router.RouteDemonitor(by, ref) // it may have fired
		return nil
	}
	c.monMu.Lock()
	full := len(c.monitors) >= maxRemoteMonitors
	c.monitors[m.ref] = by
	c.monMu.Unlock()
	if full {
		return fmt.Errorf("more than %d monitors", maxRemoteMonitors)
	}
	c.n.signals.Lock()
	defer c.n.signals.Unlock()
	// If there is no such process ergo answers at once.
	_ = c.n.system.router.RouteMonitorReg(by, gen.ProcessID{Name: string(m.name), Node: ergoName(c.n.name)}, ref)
	return nil
}

// dropMonitors forgets the monitors of a peer that is gone; ergo keeps them.
func (c *conn) dropMonitors() {
	c.monMu.Lock()
	monitors := c.monitors
	c.monitors = make(map[refFields]etf.Pid)
	c.monMu.Unlock()
	for fields, by := range monitors {
		c.n.signals.Lock()
		_ = c.n.system.router.RouteDemonitor(by, etf.Ref{Node: by.Node, Creation: fields.creation, ID: fields.id}) // as above
		c.n.signals.Unlock()
	}
}

// settleMonitors waits for the monitors that are being made. ergo enters one after it has
// asked the peer: one that has found the connection in order just before this end of it
// must be entered when ergo, after this, tells all those of the peer, or nobody ever
// would. Later ones find that the connection has failed.
func (n *Node) settleMonitors() {
	n.signals.Lock()
	defer n.signals.Unlock()
}

// Creation is part of node.ConnectionInterface.
func (c *conn) Creation() uint32 { return uint32(c.incarnation) | 1 }

// Stats is part of node.ConnectionInterface.
func (c *conn) Stats() node.NetworkStats {
	return node.NetworkStats{NodeName: ergoName(c.peer), MessagesIn: c.frames.Load()}
}

// unsupported refuses what of ergo's protocol does not cross nodes here. User messages
// go by Call and Cast. Links by pid would end the program when a node with one of two
// linked processes goes down: ergo then reads past the end of its list.
type unsupported struct{}

// Send refuses.
func (unsupported) Send(gen.Process, etf.Pid, etf.Term) error { return ErrUnsupported }

// SendReg refuses.
func (unsupported) SendReg(gen.Process, gen.ProcessID, etf.Term) error { return ErrUnsupported }

// SendAlias refuses.
func (unsupported) SendAlias(gen.Process, etf.Alias, etf.Term) error { return ErrUnsupported }

// Link refuses.
func (unsupported) Link(etf.Pid, etf.Pid) error { return ErrUnsupported }

// Unlink refuses.
func (unsupported) Unlink(etf.Pid, etf.Pid) error { return ErrUnsupported }

// LinkExit refuses.
func (unsupported) LinkExit(etf.Pid, etf.Pid, string) error { return ErrUnsupported }

// Monitor refuses.
func (unsupported) Monitor(etf.Pid, etf.Pid, etf.Ref) error { return lib.ErrPeerUnsupported }

// Demonitor refuses.
func (unsupported) Demonitor(etf.Pid, etf.Pid, etf.Ref) error { return ErrUnsupported }

// MonitorExit refuses.
func (unsupported) MonitorExit(etf.Pid, etf.Pid, string, etf.Ref) error { return ErrUnsupported }

// SpawnRequest refuses.
func (unsupported) SpawnRequest(string, string, gen.RemoteSpawnRequest, ...etf.Term) error {
	return ErrUnsupported
}

// SpawnReply refuses.
func (unsupported) SpawnReply(etf.Pid, etf.Ref, etf.Pid) error { return ErrUnsupported }

// SpawnReplyError refuses.
func (unsupported) SpawnReplyError(etf.Pid, etf.Ref, error) error { return ErrUnsupported }

// ProxyConnectRequest refuses.
func (unsupported) ProxyConnectRequest(node.ProxyConnectRequest) error { return ErrUnsupported }

// ProxyConnectReply refuses.
func (unsupported) ProxyConnectReply(node.ProxyConnectReply) error { return ErrUnsupported }

// ProxyConnectCancel refuses.
func (unsupported) ProxyConnectCancel(node.ProxyConnectCancel) error { return ErrUnsupported }

// ProxyDisconnect refuses.
func (unsupported) ProxyDisconnect(node.ProxyDisconnect) error { return ErrUnsupported }

// ProxyRegisterSession refuses.
func (unsupported) ProxyRegisterSession(node.ProxySession) error { return ErrUnsupported }

// ProxyUnregisterSession refuses.
func (unsupported) ProxyUnregisterSession(string) error { return ErrUnsupported }

// ProxyPacket refuses.
func (unsupported) ProxyPacket(*lib.Buffer) error { return ErrUnsupported }
