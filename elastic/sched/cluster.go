package sched

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/elasticps/elasticps/elastic/meter"
)

// Config describes a cluster. The zero value is an empty one with Default.
type Config struct {
	// Nodes are the first nodes; AddNodes brings more.
	Nodes []Node
	// Levels name the failure domains above a node, outermost first, as "zone", "rack".
	Levels []string
	// Policy chooses among the nodes that have room (Default).
	Policy Policy
	// Mix is what tasks are expected. The policies FGD and Default weigh by it what a
	// placement leaves usable; without one they learn it from the tasks that come.
	Mix Mix
	// Seed is that of Random (0).
	Seed uint64
	// Meter, if not nil, is told of all that is placed and of all that goes: by tenant and
	// resource (MeterCPU and so on), and of what the nodes have. Its owner advances it before
	// each change.
	Meter *meter.Meter
	// PickDevices, if not nil, chooses k whole devices among those free on a node of
	// that name, with more than k free (see ByTopology); without it the first ones are taken. It may not
	// depend on anything else.
	PickDevices func(node string, free DeviceSet, k int) DeviceSet
}

// Cluster is nodes, what is placed on them, and the decisions about what comes. It is
// not safe for concurrent use: its owner, an actor or a simulator, calls it from one
// goroutine at a time.
type Cluster struct {
	config  Config
	hosts   []host         // in the order of their domains, then of their names
	places  map[string]int // of hosts, by name
	models  []model
	customs []string
	domains []map[string]int32 // by level: the path of a domain, and its number
	// children are the domains inside each domain, by level; the first level is the
	// cluster itself, the domains of the last are nodes.
	children [][][]int32
	total    amounts
	used     amounts

	records []record
	spare   []int32 // free places in records
	byID    map[string]int32
	groups  map[string]*group
	holds   map[string]*hold
	coming  map[string]bool // tasks of the holds, by name

	empty     *Cluster // the same nodes without tasks; nil if nobody has asked yet
	mix       *weights
	learned   learned
	classes   []*class
	byKey     map[string]*class
	key       []byte // scratch
	changes   []int32
	ratings   [512]rating // scratch
	fit       fit         // scratch
	turn      int         // class that catches up next
	decisions uint64
	works     uint64 // that were placed, and nodes that came
	searched  int    // steps of the search for victims in this plan
}

// model is a kind of device.
type model struct{ name, vendor string }

// amounts are sums of what nodes have or tasks take.
type amounts struct {
	cpu    Milli
	memory int64
	models []Milli
	custom []Milli
}

// New returns a cluster without tasks. It reports every fault of the configuration.
func New(config Config) (*Cluster, error) {
	c := &Cluster{
		config: config,
		places: make(map[string]int),
		byID:   make(map[string]int32),
		groups: make(map[string]*group),
		holds:  make(map[string]*hold),
		coming: make(map[string]bool),
		byKey:  make(map[string]*class),
	}
	for range config.Levels {
		c.domains = append(c.domains, make(map[string]int32))
	}
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if int(config.Policy) >= len(rules) {
		fault("Policy %d: want less than %d", config.Policy, len(rules))
	}
	for i, level := range config.Levels {
		if level == "" || level == NodeLevel || slices.Contains(config.Levels[:i], level) {
			fault("Levels[%d] %q: want a name of its own other than %q", i, level, NodeLevel)
		}
	}
	errs = append(errs, config.Mix.check(), c.addNodes(config.Nodes))
	if err := errors.Join(errs...); err != nil {
		return nil, prefixed(err)
	}
	return c, nil
}

// AddNodes adds nodes, all or none. It takes time in proportion to all nodes, so many are
// better added at once.
func (c *Cluster) AddNodes(nodes ...Node) error { return prefixed(c.addNodes(nodes)) }

func (c *Cluster) addNodes(nodes []Node) error {
	var errs []error
	seen := make(map[string]bool, len(nodes))
	models, customs := slices.Clone(c.models), slices.Clone(c.customs)
	for _, n := range nodes {
		errs = append(errs, n.check(c.config.Levels))
		if _, exists := c.places[n.Name]; exists || seen[n.Name] {
			errs = append(errs, fmt.Errorf("node %q: exists already", n.Name))
		}
		seen[n.Name] = true
		if n.Devices > 0 {
			intern(&models, model{n.Model, n.Vendor})
		}
		for name := range n.Custom {
			intern(&customs, name)
		}
	}
	if err := c.checkTotals(nodes); err != nil {
		errs = append(errs, err)
	}
	if len(models) > MaxModels || len(customs) > MaxCustom {
		errs = append(errs, fmt.Errorf("%d models, %d custom resources: want at most %d, %d",
			len(models), len(customs), MaxModels, MaxCustom))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, n := range nodes {
		c.admit(n)
	}
	c.sortHosts()
	return nil
}

// maxTotal bounds what all nodes have together, so that sums are exact.
const maxTotal = 1 << 62

// checkTotals says whether sums over all nodes stay within their bound.
func (c *Cluster) checkTotals(nodes []Node) error {
	cpu, memory, custom := int64(c.total.cpu), c.total.memory, make(map[string]int64)
	for i, name := range c.customs {
		custom[name] = int64(c.total.custom[i])
	}
	grow := func(sum int64, v int64) int64 { return min(sum+max(min(v, MaxAmount), 0), maxTotal+1) }
	for _, n := range nodes {
		cpu, memory = grow(cpu, int64(n.CPU)), grow(memory, n.MemoryBytes)
		for name, v := range n.Custom {
			custom[name] = grow(custom[name], int64(v))
		}
	}
	for _, sum := range custom {
		cpu = max(cpu, sum)
	}
	if cpu > maxTotal || memory > maxTotal {
		return fmt.Errorf("CPU, MemoryBytes or Custom of all nodes together: want at most %d", int64(maxTotal))
	}
	return nil
}

func (c *Cluster) admit(n Node) {
	h := newHost(n)
	c.works++
	h.work = c.works
	if n.Devices > 0 {
		h.model = int8(intern(&c.models, model{n.Model, n.Vendor}))
	}
	for _, name := range sortedKeys(n.Custom) {
		intern(&c.customs, name)
	}
	path := ""
	for level, name := range n.Domains {
		path += "/" + name
		d, ok := c.domains[level][path]
		if !ok {
			d = int32(len(c.domains[level]))
			c.domains[level][path] = d
		}
		h.domains = append(h.domains, d)
	}
	c.hosts = append(c.hosts, h)
}

// sortHosts brings the nodes into order and all that refers to them after it. Nodes of
// one rack are next to each other, so that equals fill one rack before the next.
func (c *Cluster) sortHosts() {
	slices.SortFunc(c.hosts, func(a, b host) int {
		return cmp.Or(slices.Compare(a.Domains, b.Domains), cmp.Compare(a.Name, b.Name))
	})
	clear(c.places)
	c.total = amounts{models: make([]Milli, len(c.models)), custom: make([]Milli, len(c.customs))}
	c.used.models = grown(c.used.models, len(c.models))
	c.used.custom = grown(c.used.custom, len(c.customs))
	for i := range c.hosts {
		h := &c.hosts[i]
		c.places[h.Name] = i
		for len(h.custom) < len(c.customs) {
			h.custom = append(h.custom, h.Custom[c.customs[len(h.custom)]])
		}
		c.total.cpu += h.CPU
		c.total.memory += h.MemoryBytes
		if h.count > 0 {
			c.total.models[h.model] += Milli(h.count) * Whole
		}
		for j, name := range c.customs {
			c.total.custom[j] += h.Custom[name]
		}
		for _, r := range h.tasks {
			c.records[r].host = int32(i)
		}
	}
	c.measure()
	c.plant()
	c.empty = nil
	c.forgetScores()
}

// plant makes the tree of domains.
func (c *Cluster) plant() {
	c.children = make([][][]int32, len(c.domains)+1)
	c.children[0] = make([][]int32, 1)
	for level, paths := range c.domains {
		c.children[level+1] = make([][]int32, len(paths))
	}
	seen := make([]map[int32]bool, len(c.domains))
	for level := range seen {
		seen[level] = make(map[int32]bool)
	}
	for i := range c.hosts {
		parent := int32(0)
		for level, d := range c.hosts[i].domains {
			if !seen[level][d] {
				seen[level][d] = true
				c.children[level][parent] = append(c.children[level][parent], d)
			}
			parent = d
		}
		nodes := &c.children[len(c.domains)][parent]
		*nodes = append(*nodes, int32(i))
	}
}

// emptyCopy is a new cluster of the same nodes without tasks.
func (c *Cluster) emptyCopy() *Cluster {
	config := c.config
	config.Nodes, config.Mix, config.Meter = nil, c.expected(), nil
	for i := range c.hosts {
		config.Nodes = append(config.Nodes, c.hosts[i].Node)
	}
	empty, err := New(config)
	if err != nil {
		panic("sched: the nodes of a cluster make no cluster: " + err.Error())
	}
	return empty
}

// everPlaces says whether try would have placed something if the cluster were empty. The
// empty one is kept until nodes come or go.
func (c *Cluster) everPlaces(try func(*Cluster) error) bool {
	if c.empty == nil {
		c.empty = c.emptyCopy()
	}
	err := try(c.empty)
	for i := range c.empty.hosts {
		c.empty.dropAll(slices.Clone(c.empty.hosts[i].tasks))
	}
	return err == nil
}

// RemoveNode takes a node away and returns the tasks that it loses with it, in the order
// of their names. Placement groups with a bundle there go whole: the tasks in
// them are among those returned, wherever they were.
func (c *Cluster) RemoveNode(name string) ([]Task, error) {
	i, ok := c.find(name)
	if !ok {
		return nil, fmt.Errorf("%w: node %q", ErrUnknown, name)
	}
	var lost []Task
	for len(c.hosts[i].tasks) > 0 {
		r := &c.records[c.hosts[i].tasks[0]]
		if r.group != nil {
			lost = append(lost, c.dropGroup(r.group)...)
			continue
		}
		if h := r.hold; h != nil {
			c.dropAll(h.records)
			h.records, h.broken = nil, true
			continue
		}
		lost = append(lost, r.task)
		c.drop(c.hosts[i].tasks[0])
	}
	c.hosts = slices.Delete(c.hosts, i, i+1)
	c.sortHosts()
	slices.SortFunc(lost, func(a, b Task) int { return cmp.Compare(a.ID, b.ID) })
	return lost, nil
}

// Cordon keeps new tasks off a node, or with false lets them come again. What runs
// there stays.
func (c *Cluster) Cordon(name string, cordoned bool) error {
	i, ok := c.find(name)
	if !ok {
		return fmt.Errorf("%w: node %q", ErrUnknown, name)
	}
	c.hosts[i].cordoned = cordoned
	c.changed(i)
	return nil
}

// ClusterResources returns the resources of all nodes together.
func (c *Cluster) ClusterResources() Resources { return c.resources(c.total, amounts{}) }

// AvailableResources returns what is not taken: at every time between nothing and
// ClusterResources. A task that is smaller may still find no node with room.
func (c *Cluster) AvailableResources() Resources { return c.resources(c.total, c.used) }

func (c *Cluster) resources(have, used amounts) Resources {
	used.models, used.custom = grown(used.models, len(c.models)), grown(used.custom, len(c.customs))
	r := Resources{
		CPU: have.cpu - used.cpu, MemoryBytes: have.memory - used.memory,
		Devices: make(map[string]Milli, len(c.models)), Custom: make(map[string]Milli, len(c.customs)),
	}
	for i, m := range c.models {
		r.Devices[m.name] += have.models[i] - used.models[i]
	}
	for i, name := range c.customs {
		r.Custom[name] += have.custom[i] - used.custom[i]
	}
	return r
}

// NumNodes returns the number of nodes.
func (c *Cluster) NumNodes() int { return len(c.hosts) }

// NumTasks returns the number of tasks that are placed.
func (c *Cluster) NumTasks() int { return len(c.byID) }

// find returns the place of a node.
func (c *Cluster) find(name string) (int, bool) {
	i, ok := c.places[name]
	return i, ok
}

// book takes what a record needs off its node, or gives it back with sign -1.
func (c *Cluster) book(r *record, sign Milli) {
	h := &c.hosts[r.host]
	h.take(sign*r.need.cpu, r.devices, sign*r.need.share)
	h.memory -= int64(sign) * r.need.memory
	c.used.cpu += sign * r.need.cpu
	c.used.memory += int64(sign) * r.need.memory
	if r.devices != 0 {
		c.used.models[h.model] += sign * r.need.share * Milli(bits.OnesCount32(uint32(r.devices)))
	}
	for _, x := range r.need.custom {
		h.custom[x.index] -= sign * x.amount
		c.used.custom[x.index] += sign * x.amount
	}
	if c.config.Meter != nil {
		c.charge(r, sign)
	}
	c.changed(int(r.host))
}

// intern returns the place of something in a list, adding it if need be.
func intern[T comparable](list *[]T, v T) int {
	if i := slices.Index(*list, v); i >= 0 {
		return i
	}
	*list = append(*list, v)
	return len(*list) - 1
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func grown(list []Milli, n int) []Milli {
	return append(list[:len(list):len(list)], make([]Milli, max(0, n-len(list)))...)
}
