//go:build linux

package ps_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/actor"
	"github.com/elasticps/elasticps/internal/starved"
	"github.com/elasticps/elasticps/ps"
	"github.com/elasticps/elasticps/shard"
)

// Hosts that lose each other: each party of the cluster has a network namespace of its
// own, as a process, behind one router, which drops in silence what goes from one host
// to another when the test says so. The test itself runs in a namespace too: when its
// processes have ended, nothing is left of the network. It needs root and iproute2.

const (
	insideVariable = "ELASTICPS_TEST_NETWORK"
	hostVariable   = "ELASTICPS_TEST_HOST"
	controlPort    = 7000
	dataPort       = 7001
)

// inNetwork runs the test again in a namespace of its own, and reports whether this is
// that second run.
func inNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) == t.Name() {
		run(t, "link", "set", "lo", "up")
		return true
	}
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root (uid %d) and ip of iproute2 (%v)", os.Getuid(), err)
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.Command(os.Args[0], "-test.run="+pattern, "-test.timeout=300s", "-test.v="+fmt.Sprint(testing.Verbose()))
	cmd.Env = append(os.Environ(), insideVariable+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	t.Logf("in a network namespace:\n%s", out)
	require.NoError(t, err)
	return false
}

// run runs ip.
func run(t testing.TB, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// address is the address of a host; 0 is the test itself.
func address(host int) string { return fmt.Sprintf("10.77.%d.2", host) }

// network is the hosts of a test and the router between them.
type network struct {
	t      *testing.T
	router *process
	hosts  map[string]int
}

func newNetwork(t *testing.T) *network {
	n := &network{t: t, hosts: map[string]int{"home": 0}}
	n.router = n.launch(role{Kind: "router", Name: "router"}, -1)
	n.join(os.Getpid(), 0)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "eth0").Run() }) // else it goes with the router, some time
	require.NoError(t, configure(0))
	return n
}

// command is that of a role on a host.
func (n *network) command(r role, host int) *exec.Cmd {
	cmd := r.command(n.t)
	cmd.Args[1] = "-test.run=^TestHostRole$"
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", hostVariable, host))
	return cmd
}

// beside runs a role on the host of a process.
func (n *network) beside(other *process, r role, host string) *process {
	n.t.Helper()
	cmd := n.command(r, n.hosts[host])
	inside := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(other.cmd.Process.Pid), "-n"}, cmd.Args...)...)
	inside.Env = cmd.Env
	p := launchCommand(n.t, inside)
	n.t.Cleanup(p.end)
	p.expect("ready")
	return p
}

// launch runs a role in a namespace of its own.
func (n *network) launch(r role, host int) *process {
	n.t.Helper()
	cmd := n.command(r, host)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p := launchCommand(n.t, cmd)
	n.t.Cleanup(p.end)
	if host >= 0 {
		n.join(cmd.Process.Pid, host)
	}
	p.expect("ready")
	return p
}

// join connects the namespace of a process to the router.
func (n *network) join(pid, host int) {
	n.t.Helper()
	run(n.t, "link", "add", fmt.Sprintf("h%d", host), "netns", fmt.Sprint(n.router.cmd.Process.Pid),
		"type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(pid))
	n.route("address add 10.77.%d.1/24 dev h%d", host, host)
	n.route("link set h%d up", host)
}

// route has the router run ip.
func (n *network) route(format string, args ...any) {
	n.t.Helper()
	require.Equal(n.t, "ok", n.router.tell(fmt.Sprintf(format, args...)))
}

// host runs a role on a host of its own.
func (n *network) host(r role) *process {
	host := len(n.hosts)
	n.hosts[r.Name] = host
	return n.launch(r, host)
}

// cut drops what goes from one host to another, until it is healed.
func (n *network) cut(from, to string) {
	n.route("rule add from %s to %s blackhole", address(n.hosts[from]), address(n.hosts[to]))
}

func (n *network) heal(from, to string) {
	n.route("rule del from %s to %s blackhole", address(n.hosts[from]), address(n.hosts[to]))
}

// configure waits for the interface to the router, and sets it up, unless another process
// of the host has.
func configure(host int) error {
	for deadline := time.Now().Add(patience); ; {
		eth, err := net.InterfaceByName("eth0")
		if err == nil {
			if addrs, _ := eth.Addrs(); len(addrs) > 0 {
				return nil
			}
			break
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond) // nothing tells when the test has put it there
	}
	for _, args := range []string{
		"link set lo up", "address add " + address(host) + "/24 dev eth0", "link set eth0 up",
		fmt.Sprintf("route add default via 10.77.%d.1", host),
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}

// TestHostRole is not a test: it is the processes on the hosts of the tests.
func TestHostRole(t *testing.T) {
	text := os.Getenv(roleVariable)
	if text == "" || os.Getenv(hostVariable) == "" {
		return
	}
	var r role
	var host int
	_, err := fmt.Sscan(os.Getenv(hostVariable), &host)
	if err == nil {
		err = json.Unmarshal([]byte(text), &r)
	}
	switch {
	case err != nil:
	case r.Kind == "router":
		err = routePackets()
	default:
		err = errors.Join(configure(host), r.onHost(host))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// routePackets is the router: it obeys the test's commands, arguments of ip.
func routePackets() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if out, err := exec.Command("ip", strings.Fields(in.Text())...).CombinedOutput(); err != nil {
			fmt.Printf("%v: %q\n", err, out)
			continue
		}
		fmt.Println("ok")
	}
	return in.Err()
}

// onHost is a server or a trainer on a host.
func (r role) onHost(host int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := actor.Config{Name: r.Name, Secret: r.Secret, Peers: map[string]string{r.Home: r.Addr}, AllowInsecure: true}
	cfg.Listen = net.JoinHostPort(address(host), "0")
	if r.Kind == "server" {
		cfg.Listen = fmt.Sprintf("%s:%d", address(host), controlPort)
	}
	n, err := actor.Start(ctx, cfg)
	if err != nil {
		return err
	}
	coordinator := actor.Ref{Node: r.Home, Name: ps.CoordinatorProcess}
	if r.Kind == "trainer" || r.Kind == "reader" {
		return r.train(ctx, n, coordinator)
	}
	data := fmt.Sprintf("%s:%d", address(host), dataPort)
	if _, err := ps.StartServer(ctx, ps.ServerConfig{
		Node: n, ID: shard.ServerID(r.Name), Coordinator: coordinator, Listen: data, Advertise: data, AllowInsecure: true, Domain: r.Name,
	}); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = bufio.NewReader(os.Stdin).ReadString(0) // until the test closes it
	_ = err
	return nil
}

// operation is a push or a pull of one layer: when it began and ended, in nanoseconds of
// the clock that all processes of the machine share, and what was read.
type operation struct {
	Layer      int
	Begin, End int64
	Value      float32 // of a pull
	Pull       bool
	Fenced     bool // a push that has failed: the worker was taken for gone meanwhile
}

// layersOfCut and elemsOfCut are the size of the job in these tests.
const (
	layersOfCut = 3
	elemsOfCut  = 8
)

// train pushes to all layers, unless it is a reader, and pulls from them until it is told
// to finish, and answers then with all that it has done. A push is never given up, unless the
// worker is no member any more; a pull is, soon.
func (r role) train(ctx context.Context, n *actor.Node, coordinator actor.Ref) error {
	c, err := ps.Dial(ctx, ps.ClientConfig{Node: n, Name: r.Name, Coordinator: coordinator})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var all []operation
	note := func(o operation) {
		o.End = time.Now().UnixNano()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	stop := make(chan struct{})
	errs := make(chan error, 2*layersOfCut)
	loop := func(f func() error) {
		for {
			select {
			case <-stop:
				errs <- nil
				return
			default:
			}
			err := f()
			if errors.Is(err, ps.ErrNotMember) { // it is noted
				err = nil
				<-stop
			}
			if err != nil {
				errs <- err
				return
			}
			time.Sleep(time.Millisecond) // leaves the machine to the others
		}
	}
	for i := range layersOfCut {
		name := fmt.Sprintf("l%d", i)
		go loop(func() error {
			if r.Kind == "reader" {
				return nil
			}
			o := operation{Layer: i, Begin: time.Now().UnixNano()}
			err := c.Push(ctx, name, vector(elemsOfCut, -1))
			o.Fenced = errors.Is(err, ps.ErrNotMember)
			if err == nil || o.Fenced {
				note(o)
			}
			return err
		})
		go loop(func() error {
			o := operation{Layer: i, Pull: true, Begin: time.Now().UnixNano()}
			got := make([]float32, elemsOfCut)
			pull, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if c.Pull(pull, name, got) == nil {
				o.Value = got[0]
				note(o)
			}
			return nil
		})
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return nil // the test is over
	}
	close(stop)
	for range 2 * layersOfCut {
		if err := <-errs; err != nil {
			return err
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	_, err = fmt.Println(string(text))
	return err
}

// finish ends a trainer and returns what it has done.
func (p *process) finish() (all []operation) {
	p.t.Helper()
	said := p.tell("finish")
	require.NoError(p.t, json.Unmarshal([]byte(said), &all), "it has said: %.1000s", said)
	return all
}

// TestCutOff cuts the host of an owner off: from the coordinator, from the server that
// follows it, from all servers, from the workers, or from all of them, in both directions
// or in one, while workers on another host and on that one push and pull.
func TestCutOff(t *testing.T) {
	together(t)
	every := os.Getenv("ELASTICPS_CUTS") == "all" // of one direction too, whatever the time
	for _, from := range []string{"coordinator", "follower", "servers", "workers", "all"} {
		for _, way := range []string{"both", "out", "in"} {
			if !every && (from != "all" && way != "both" || from != "servers" && (underRace || testing.Short())) {
				continue
			}
			t.Run(from+"/"+way, func(t *testing.T) {
				t.Parallel()
				if inNetwork(t) {
					testCutOff(t, from, way)
				}
			})
		}
	}
}

func testCutOff(t *testing.T, from, way string) {
	s := newSplit(t, "trainer")
	s.train()
	others := map[string][]string{"coordinator": {"home"}, "workers": {"worker", "second"}}
	for id := range s.servers {
		if id != s.victim {
			others["servers"] = append(others["servers"], string(id))
		}
	}
	others["follower"] = []string{string(s.c.records()[0].Followers[0])}
	others["all"] = slices.Concat(others["coordinator"], others["workers"], others["servers"])
	each := func(f func(from, to string)) {
		for _, other := range others[from] {
			if way != "in" {
				f(string(s.victim), other)
			}
			if way != "out" {
				f(other, string(s.victim))
			}
		}
	}
	<-time.After(300 * time.Millisecond) // of training before
	cut := s.cutNow()
	each(s.n.cut)
	if from == "follower" { // and the other server is there
		s.c.exchanged(shard.ServerID(others["follower"][0]))
	}
	<-time.After(cutOff - time.Since(cut)) // what must happen meanwhile is seen in the history
	t.Log(s.c.status().Failovers)
	if from == "workers" { // the owner lives, but most of them cannot reach it
		require.NotEqual(t, s.victim, s.c.owner(0))
		require.Empty(t, s.c.status().Failovers)
	}
	healed := time.Now()
	each(s.n.heal)
	eventually(t, "the server is back", func() bool { return s.c.isUp(s.victim) })
	s.c.protected()
	<-time.After(300 * time.Millisecond) // of training after
	s.check(cut, healed)
}

// cutOff is how long a host is cut off, and maxPause how long training may rest then.
const (
	cutOff   = 2500 * time.Millisecond
	maxPause = 2 * time.Second
)

// split is a job on hosts of their own, with workers that train on two of them.
type split struct {
	t         *testing.T
	n         *network
	c         *cluster
	m         *starved.Meter
	servers   map[shard.ServerID]*process
	victim    shard.ServerID // owns the first layer
	far, near *process       // workers, on a host of their own and on the victim's
	second    *process       // on one more host: most workers are elsewhere than the victim
}

// newSplit starts a job, and a trainer or reader on the host of the first layer's owner.
func newSplit(t *testing.T, near string) *split {
	s := &split{t: t, n: newNetwork(t), servers: map[shard.ServerID]*process{}}
	s.c = newCluster(t, layersJob(1, layersOfCut, elemsOfCut), s.n.home)
	r := role{Secret: s.c.secret, Home: s.c.home.Name(), Addr: s.c.home.Addr()}
	for _, id := range []shard.ServerID{"s1", "s2", "s3"} {
		r.Kind, r.Name = "server", string(id)
		s.servers[id] = s.n.host(r)
	}
	s.c.placed()
	s.c.spread("s1", "s2", "s3")
	s.c.protected()
	s.victim = s.c.owner(0)
	r.Kind, r.Name = near, "near"
	s.near = s.n.beside(s.servers[s.victim], r, string(s.victim))
	s.n.hosts["worker"] = len(s.n.hosts)
	s.n.hosts["second"] = len(s.n.hosts)
	return s
}

// train starts the trainers on hosts of their own.
func (s *split) train() {
	s.t.Helper()
	r := role{Kind: "trainer", Name: "worker", Secret: s.c.secret, Home: s.c.home.Name(), Addr: s.c.home.Addr()}
	s.far = s.n.launch(r, s.n.hosts[r.Name])
	r.Name = "second"
	s.second = s.n.launch(r, s.n.hosts[r.Name])
}

// cutNow is the time of the cut, from which on it is watched what pauses are the machine's.
func (s *split) cutNow() time.Time {
	s.m = starved.Watch(s.t)
	return time.Now()
}

// check ends the training, and looks at what was pushed and read, and what is left.
func (s *split) check(cut, healed time.Time) {
	distant, near := s.far.finish(), s.near.finish()
	others := slices.Concat(distant, s.second.finish())
	history := slices.Concat(others, near)
	for i := range layersOfCut {
		require.Zero(s.t, fencedOf(others, i), "workers that nobody was cut off from are members")
		longest, at := pause(distant, i, cut, healed)
		s.t.Logf("layer %d: %d pushes, none for %v from %v after the cut on; %d reads at the victim meanwhile",
			i, pushesOf(history, i), longest, at, readsWithin(near, i, cut, healed))
		if !underRace {
			s.m.Less(longest, maxPause)
		}
		s.c.sum(i, pushesOf(history, i), fencedOf(near, i))
		linear(s.t, history, i)
	}
	s.c.oneOwner()
	s.c.noSpareCopies(elemsOfCut)
}

// TestDeposedOwnerServesNoOldValue: a reader on the host of an owner that is cut off from
// everybody reads what it is served there. All that the owner has is confirmed, and no
// push of anybody is under way when it is cut off: only the end of its leases tells the
// owner that others go on.
func TestDeposedOwnerServesNoOldValue(t *testing.T) {
	together(t)
	if !inNetwork(t) {
		return
	}
	s := newSplit(t, "reader")
	<-time.After(300 * time.Millisecond) // of reading
	cut := s.cutNow()
	for other := range s.n.hosts {
		if other != string(s.victim) {
			s.n.cut(other, string(s.victim))
			s.n.cut(string(s.victim), other)
		}
	}
	s.train()
	<-time.After(cutOff - time.Since(cut))
	healed := time.Now()
	for other := range s.n.hosts {
		if other != string(s.victim) {
			s.n.heal(other, string(s.victim))
			s.n.heal(string(s.victim), other)
		}
	}
	eventually(t, "the server is back", func() bool { return s.c.isUp(s.victim) })
	s.c.protected()
	<-time.After(300 * time.Millisecond)
	s.check(cut, healed)
	require.NotEmpty(t, s.c.status().Failovers)
}

// exchanged waits until every shard has a follower and another one has taken the place of
// the first shard's.
func (c *cluster) exchanged(former shard.ServerID) {
	c.t.Helper()
	eventually(c.t, "another server follows", func() bool {
		r := c.records()[0]
		return r.Followers.Len() == 1 && !r.Followers.Has(former)
	})
}

// readsWithin is how many pulls of a layer have begun and ended between two times.
func readsWithin(history []operation, layer int, begin, end time.Time) (count int) {
	for _, o := range history {
		if o.Layer == layer && o.Pull && o.Begin > begin.UnixNano() && o.End < end.UnixNano() {
			count++
		}
	}
	return count
}

// TestSlowHost: a server that gets the processor for a part of the time only, with breaks
// on both sides of a lease, holds the others up, and nothing is lost or read twice.
func TestSlowHost(t *testing.T) {
	together(t)
	if !inNetwork(t) {
		return
	}
	s := newSplit(t, "trainer")
	s.train()
	cut := s.cutNow()
	for i := range 20 {
		s.servers[s.victim].signal(syscall.SIGSTOP)
		<-time.After(time.Duration(50+25*i) * time.Millisecond) // up to more than a lease and a suspicion
		s.servers[s.victim].signal(syscall.SIGCONT)
		<-time.After(20 * time.Millisecond)
	}
	healed := time.Now()
	eventually(t, "the server is back", func() bool { return s.c.isUp(s.victim) })
	s.c.protected()
	<-time.After(300 * time.Millisecond)
	s.check(cut, healed)
}

// home puts the coordinator's node on the test's host.
func (n *network) home(c *cluster) {
	n.t.Helper()
	node, err := actor.Start(c.ctx, actor.Config{
		Name: "outer-home", Secret: c.secret, Listen: address(0) + ":0", AllowInsecure: true, Logger: c.log,
	})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = node.Close() })
	c.home, c.cfg.Node = node, node
}

// pushesOf is how many pushes of a layer were acknowledged.
func pushesOf(history []operation, layer int) (count int) {
	for _, o := range history {
		if o.Layer == layer && !o.Pull && !o.Fenced {
			count++
		}
	}
	return count
}

// fencedOf is how many pushes of a layer have failed and may have been applied all the same:
// those under way of a worker that was cut off for so long that it was taken for gone.
func fencedOf(history []operation, layer int) (count int) {
	for _, o := range history {
		if o.Layer == layer && o.Fenced {
			count++
		}
	}
	return count
}

// pause is the longest time without an acknowledgement that began between two times, and
// when it did.
func pause(history []operation, layer int, begin, end time.Time) (longest, at time.Duration) {
	var acks []int64
	for _, o := range history {
		if o.Layer == layer && !o.Pull && !o.Fenced {
			acks = append(acks, o.End)
		}
	}
	slices.Sort(acks)
	last := acks[0]
	for _, a := range acks {
		if gap := time.Duration(a - last); gap > longest && a > begin.UnixNano() && last < end.UnixNano() {
			longest, at = gap, time.Duration(last-begin.UnixNano())
		}
		last = a
	}
	return longest, at
}

// linear requires that every pull has seen all pushes that had been acknowledged before it
// began, and none that began after it had ended: reads of a number that only grows are
// linearizable then.
func linear(t *testing.T, history []operation, layer int) {
	var begun, ended []int64
	for _, o := range history {
		if o.Layer == layer && !o.Pull {
			begun = append(begun, o.Begin)
		}
		if o.Layer == layer && !o.Pull && !o.Fenced {
			ended = append(ended, o.End)
		}
	}
	slices.Sort(begun)
	slices.Sort(ended)
	reads := 0
	for _, o := range history {
		if o.Layer == layer && o.Pull {
			reads++
			least, _ := slices.BinarySearch(ended, o.Begin)
			most, _ := slices.BinarySearch(begun, o.End)
			require.GreaterOrEqual(t, int(o.Value), least, "layer %d: a read that is older than what was acknowledged: %+v", layer, o)
			require.LessOrEqual(t, int(o.Value), most, "layer %d: a read of what nobody has written: %+v", layer, o)
		}
	}
	require.Positive(t, reads)
}

// sum requires that a layer is the sum of so many pushes, or of some more that may have
// been applied.
func (c *cluster) sum(layer, count, more int) {
	c.t.Helper()
	got := make([]float32, elemsOfCut)
	require.NoError(c.t, c.client(fmt.Sprintf("reader-%d", layer)).Pull(c.ctx, fmt.Sprintf("l%d", layer), got))
	require.GreaterOrEqual(c.t, int(got[0]), count)
	require.LessOrEqual(c.t, int(got[0]), count+more)
	require.Equal(c.t, vector(elemsOfCut, got[0]), got)
}
