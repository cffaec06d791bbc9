package elastic

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/elastic/federation"
	"github.com/elasticps/elasticps/elastic/sched"
)

// ErrNotHome is wrapped by the error of a Home that is none any more, or not yet sure of it.
var ErrNotHome = errors.New("elastic: not the home of the federation")

const (
	// maxJobBytes bounds a job of a federation as JSON, which is what the store keeps, and
	// maxStartBytes those that one order starts: they fit a message.
	maxJobBytes    = 32 << 10
	maxStartBytes  = 48 << 10
	maxJobIDBytes  = 128
	maxRefsToHomes = 64
)

// The messages of a federation. Each is idempotent: a report that came before is not answered, a
// job that is known is not taken again.

// siteReport is a federation.Report. A copy is told by its epoch, which no other copy has.
type siteReport struct {
	Site        string
	Incarnation uint64
	Term        uint64
	Sent        time.Duration
	Epochs      []uint64
	States      []byte
	Free        sched.Milli
}

// siteOrder is a federation.Order; without a site it answers nothing.
type siteOrder struct {
	Site        string
	Incarnation uint64
	Term        uint64
	Sent        time.Duration
	Keep        []uint64
	Start       []federation.Start
}

type submitRequest struct{ Job federation.Job }

type cancelRequest struct{ Job string }

type whereRequest struct{ Job string }

// registerFederation makes the messages known to a node.
func registerFederation(n *actor.Node) error {
	return errors.Join(
		n.Register("federation.report", siteReport{}), n.Register("federation.order", siteOrder{}),
		n.Register("federation.submit", submitRequest{}), n.Register("federation.cancel", cancelRequest{}),
		n.Register("federation.where", whereRequest{}),
		n.RegisterError("federation.not_home", ErrNotHome), n.RegisterError("federation.unknown", federation.ErrUnknown),
		n.RegisterError("federation.exists", federation.ErrExists),
	)
}

func reportMessage(r federation.Report) siteReport {
	m := siteReport{Site: r.Site, Incarnation: r.Incarnation, Term: r.Term, Sent: r.Sent, Free: r.Free}
	for _, c := range r.Copies {
		m.Epochs, m.States = append(m.Epochs, c.Epoch), append(m.States, byte(c.State))
	}
	return m
}

// report is what a message says, with the names of the jobs whose copies have these epochs.
// Others are copies of former times, which nobody waits for.
func (m siteReport) report(jobs map[uint64]string) (federation.Report, error) {
	r := federation.Report{Site: m.Site, Incarnation: m.Incarnation, Term: m.Term, Sent: m.Sent, Free: m.Free}
	if m.Site == "" || len(m.Site) > maxJobIDBytes || len(m.Epochs) != len(m.States) {
		return r, fmt.Errorf("elastic: report of site %.64q of %d epochs and %d states: want a name of 1 to %d bytes, and a state for each",
			m.Site, len(m.Epochs), len(m.States), maxJobIDBytes)
	}
	for i, epoch := range m.Epochs {
		if job, ok := jobs[epoch]; ok {
			c := federation.Copy{Job: job, Epoch: epoch}
			r.Copies = append(r.Copies, federation.Held{Copy: c, State: federation.State(m.States[i])})
		}
	}
	return r, nil
}

// orderMessage is an order for a message: with as many of those that it starts as fit. The others
// are in the next one.
func orderMessage(o federation.Order) siteOrder {
	m := siteOrder{Site: o.Site, Incarnation: o.Incarnation, Term: o.Term, Sent: o.Sent}
	for _, c := range o.Keep {
		m.Keep = append(m.Keep, c.Epoch)
	}
	room := maxStartBytes
	for _, s := range o.Start {
		text, err := json.Marshal(s)
		if room -= len(text); err != nil || room < 0 {
			break
		}
		m.Start = append(m.Start, s)
	}
	return m
}

// order is what a message says to a site that has these copies.
func (m siteOrder) order(copies map[uint64]federation.Copy) federation.Order {
	o := federation.Order{Site: m.Site, Incarnation: m.Incarnation, Term: m.Term, Sent: m.Sent, Start: m.Start}
	for _, epoch := range m.Keep {
		if c, ok := copies[epoch]; ok {
			o.Keep = append(o.Keep, c)
		}
	}
	return o
}
