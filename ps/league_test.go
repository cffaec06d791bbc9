package ps_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// league is a cluster with two processes of which one is the coordinator, c1 at first.
type league struct {
	*cluster
	store *storeServer
	role  role // of a candidate
	addrs map[string]string
	ran   []*process
}

// leagueTTL leaves a coordinator 1.5 s without an answer of the store.
const leagueTTL = 2500 * time.Millisecond

// leagueSuspicion is longer than live parties are silent when many tests run at once.
const leagueSuspicion = 2 * time.Second

// newLeague is for candidates that others can find, none of which runs yet.
func newLeague(t testing.TB, job ps.Job) *league {
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	t.Cleanup(cancel)
	l := &league{cluster: &cluster{t: t, ctx: ctx, secret: "secret of the test", log: logger(), suspicion: leagueSuspicion}, addrs: map[string]string{}}
	for _, name := range []string{"c1", "c2"} {
		l.addrs[name] = freeAddr(t)
	}
	var node *actor.Node
	l.role = role{Kind: "candidate", Secret: l.secret, Job: job, LeaseTTL: leagueTTL, Suspicion: leagueSuspicion}
	l.store, node, l.role.Served = l.serveStore()
	l.role.Peers = map[string]string{"store": node.Addr()}
	t.Cleanup(func() { // after the workers have left
		for _, p := range l.ran {
			p.end()
		}
	})
	l.remote = &actor.Ref{Node: "c1", Name: ps.CoordinatorProcess}
	l.standbys = []actor.Ref{{Node: "c2", Name: ps.CoordinatorProcess}}
	l.peers = l.addrs
	var err error
	l.admin, err = ps.NewAdmin(l.cluster.node("admin"), *l.remote, l.standbys...)
	require.NoError(t, err)
	return l
}

// run starts a candidate. It halts at a step.
func (l *league) run(name string, haltAt shard.EffectKind, hang bool) *process {
	l.t.Helper()
	r := l.role
	r.Name, r.Addr, r.HaltAt, r.Hang = name, l.addrs[name], haltAt, hang
	p := r.launch(l.t)
	l.ran = append(l.ran, p)
	p.expect("ready")
	return p
}

// both starts the two candidates. The first one leads.
func (l *league) both(haltAt shard.EffectKind, hang bool) (first, second *process) {
	l.t.Helper()
	first = l.run("c1", haltAt, hang)
	first.expect("leads")
	return first, l.run("c2", 0, false)
}

// stand is the candidate: it says when it leads and when it is deposed.
func (r role) stand(n *actor.Node) error {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	go func() { // the parent ends the process by closing the standard input
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	if err := registerStore(n); err != nil {
		return err
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	var halted atomic.Bool // moves run at the same time
	cfg := ps.CoordinatorConfig{
		Node: n, Job: r.Job, Store: &storeClient{n, r.Served}, StepTimeout: 2 * time.Second, LeaseTTL: r.LeaseTTL,
	}
	cfg.BeforeStep(func(e shard.Effect) {
		if e.Kind != r.HaltAt || !halted.CompareAndSwap(false, true) {
			return
		}
		fmt.Println("halt")
		if !r.Hang {
			select {} // until it is killed
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-continued // the thread may go on for a moment before it stops
	})
	fmt.Println("ready")
	for {
		c, err := ps.StandBy(ctx, cfg)
		if err != nil {
			return err
		}
		fmt.Println("leads")
		select {
		case <-c.Done():
			fmt.Println("deposed")
		case <-ctx.Done():
		}
		if err := c.Close(); err != nil {
			return err
		}
		if !errors.Is(c.Err(), ps.ErrDeposed) {
			return c.Err()
		}
	}
}

// returned waits until the servers have registered with the coordinator.
func (c *cluster) returned(servers ...shard.ServerID) {
	c.t.Helper()
	for _, id := range servers {
		eventually(c.t, string(id)+" is back", func() bool { return c.isUp(id) })
	}
}

// awaitStopped returns when a process that stops itself stands still.
func (p *process) awaitStopped() {
	p.t.Helper()
	eventually(p.t, "the process has stopped", p.stopped)
}

// takesOver waits until a candidate leads, not longer than it may take since m watches.
func (l *league) takesOver(p *process, m *starved.Meter) {
	l.t.Helper()
	p.expect("leads")
	took := m.Took()
	l.t.Log("another coordinator after", took)
	if !underRace {
		m.Less(took, leagueTTL+time.Second)
	}
}
