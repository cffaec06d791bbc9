package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/elasticps/elasticps/device"
)

// ErrNotReserved is the cause of the error for a reservation that the pool does not have:
// it was released, or lost with a device.
var ErrNotReserved = errors.New("not reserved")

// ID names a reservation of a pool. IDs are never used twice.
type ID uint64

// Reservation is what was given out.
type Reservation struct {
	ID      ID
	Request Request
	Parts   []Part // one for each device, in the order of the pool
}

// Part is the share of one device.
type Part struct {
	Device       string
	Template     string  // by which the device was cut, empty if it was cut as asked or taken whole
	Taken        Amounts // of the device: with a template more than was asked for
	SpilledBytes int64   // of Taken.Bytes, how much is in the memory of the host
}

// Transfer is memory of a share that has to move between device and host.
type Transfer struct {
	Reservation ID
	Device      string
	Bytes       int64
	Out         bool // to the host; else back to the device
}

// Status is what a device has and what is free.
type Status struct {
	Device       string
	Usable       bool    // else there is nothing on it and nothing free
	Total        Amounts // memory times MemoryFactor
	Available    Amounts
	SpilledBytes int64
	Shares       int
}

// Pool gives out devices. It starts no goroutine and needs no Close.
type Pool struct {
	cfg Config

	mu       sync.Mutex
	cards    []*card // in the order in which they were added
	reserved map[ID]*reservation
	clock    uint64 // counts reservations and touches
	last     ID
}

// New returns a pool of devices. The error names every field that is out of bounds.
func New(c Config) (*Pool, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.MemoryFactor = cmp.Or(c.MemoryFactor, 1)
	c.MaxShares = cmp.Or(c.MaxShares, manyShares)
	devices := c.Devices
	c.Devices = nil
	p := &Pool{cfg: c, reserved: make(map[ID]*reservation)}
	_, _, err := p.Update(devices)
	return p, err
}

// memoryOf returns how much is given out of a device's memory.
func (p *Pool) memoryOf(c *card) int64 {
	if c.table != nil {
		return c.bytes // the hardware cuts it
	}
	return int64(float64(c.bytes) * p.cfg.MemoryFactor)
}

func (p *Pool) total(c *card) Amounts {
	if c.lost {
		return Amounts{}
	}
	return Amounts{WholeMilli, p.memoryOf(c)}
}

// Reserve gives out what is wanted, all of it or nothing, and returns what has to be
// spilled before it is used. Of the devices that fit it takes those on which least is
// spilled, then those with the least room, or with the most if Config.Spread says so, then
// those that were added first. The error is a *RefusalError when they do not fit, and else
// names what is wrong with the request.
func (p *Pool) Reserve(r Request) (Reservation, []Transfer, error) {
	if err := r.validate(); err != nil {
		return Reservation{}, nil, err
	}
	r.Devices = max(1, r.Devices)
	r.Among = slices.Clone(r.Among)
	p.mu.Lock()
	defer p.mu.Unlock()
	var candidates, fit []*card
	for _, c := range p.cards {
		if len(r.Among) > 0 && !slices.Contains(r.Among, c.id) {
			continue
		}
		candidates = append(candidates, c)
		if len(p.obstacles(c, r)) == 0 {
			fit = append(fit, c)
		}
	}
	if len(fit) < r.Devices {
		return Reservation{}, nil, p.refuse(r, candidates)
	}
	slices.SortStableFunc(fit, p.preference(r))
	fit = fit[:r.Devices]
	if err := p.hostRoom(r, fit, candidates); err != nil {
		return Reservation{}, nil, err
	}
	return p.grant(r, fit)
}

// preference orders the cards that fit.
func (p *Pool) preference(r Request) func(a, b *card) int {
	sign := 1
	if p.cfg.Spread {
		sign = -1
	}
	return func(a, b *card) int {
		ua, ub := a.used(), b.used()
		return cmp.Or(
			cmp.Compare(a.growth(r), b.growth(r)),
			sign*cmp.Compare(-ua.Milli, -ub.Milli),
			sign*cmp.Compare(p.memoryOf(a)-ua.Bytes, p.memoryOf(b)-ub.Bytes),
		)
	}
}

// hostRoom refuses a request for which more would be spilled than the host takes.
func (p *Pool) hostRoom(r Request, cards, candidates []*card) error {
	if p.cfg.HostBytes == 0 {
		return nil
	}
	var growth int64
	for _, c := range cards {
		growth += c.growth(r)
	}
	if free := p.cfg.HostBytes - p.spilled(); growth > free {
		return &RefusalError{
			Obstacle: Obstacle{Constraint: HostRoom, Want: growth, Have: free},
			Request:  r, Never: p.never(r, candidates),
		}
	}
	return nil
}

func (p *Pool) spilled() int64 {
	var sum int64
	for _, c := range p.cards {
		sum += c.spilled()
	}
	return sum
}

func (p *Pool) grant(r Request, cards []*card) (Reservation, []Transfer, error) {
	p.last++
	p.clock++
	granted := &reservation{id: p.last, request: r, touched: p.clock}
	var transfers []Transfer
	for _, c := range p.cards {
		if slices.Contains(cards, c) {
			granted.cards = append(granted.cards, c)
			taken := c.cut(r)
			c.shares = append(c.shares, &share{of: granted, taken: taken, fresh: true})
			transfers = append(transfers, c.settle()...)
		}
	}
	p.reserved[granted.id] = granted
	return granted.report(), transfers, nil
}

// report returns the reservation as its owner sees it.
func (r *reservation) report() Reservation {
	out := Reservation{ID: r.id, Request: r.request}
	out.Request.Among = slices.Clone(r.request.Among)
	for _, c := range r.cards {
		part := Part{Device: c.id}
		for _, s := range c.shares {
			if s.of == r {
				part.Template, part.Taken = s.taken.Name, Amounts{s.taken.Milli, s.taken.Bytes}
				part.SpilledBytes = s.spilled
			}
		}
		out.Parts = append(out.Parts, part)
	}
	return out
}

// Get returns a reservation as it is now, or an error that wraps ErrNotReserved.
func (p *Pool) Get(id ID) (Reservation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.find(id)
	if err != nil {
		return Reservation{}, err
	}
	return r.report(), nil
}

func (p *Pool) find(id ID) (*reservation, error) {
	r, ok := p.reserved[id]
	if !ok {
		return nil, fmt.Errorf("pool: reservation %d: %w", id, ErrNotReserved)
	}
	return r, nil
}

// Touch says that a reservation is used now: among those of its priority it is the last
// to be spilled. It returns what has to move for that, or an error that wraps
// ErrNotReserved.
func (p *Pool) Touch(id ID) ([]Transfer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.find(id)
	if err != nil {
		return nil, err
	}
	p.clock++
	r.touched = p.clock
	var transfers []Transfer
	for _, c := range r.cards {
		transfers = append(transfers, c.settle()...)
	}
	return transfers, nil
}

// Release gives a reservation back and returns what may move into the room that it
// leaves, or an error that wraps ErrNotReserved.
func (p *Pool) Release(id ID) ([]Transfer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, err := p.find(id)
	if err != nil {
		return nil, err
	}
	p.remove(r)
	var transfers []Transfer
	for _, c := range r.cards {
		transfers = append(transfers, c.settle()...)
	}
	return transfers, nil
}

// remove takes a reservation from all its cards, which are to be settled then.
func (p *Pool) remove(r *reservation) {
	for _, c := range r.cards {
		c.drop(r)
	}
	delete(p.reserved, r.id)
}

// Update takes what an inventory says about the devices: one that has failed or gone is
// lost, with every reservation that has a share of it; one that is usable again comes back
// empty; new ones are added; and when one has less memory than before, its reservations are
// given up in the order in which they would be spilled until the rest fits. A device whose
// memory is unknown now keeps the size that it had. Devices that are not in the list stay as
// they are. It returns the reservations that were lost, as they were, and what may move. The
// error names every device that is out of bounds; nothing has changed then.
func (p *Pool) Update(devices []device.Device) (lost []Reservation, transfers []Transfer, err error) {
	if err := p.cfg.validateDevices(devices); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[string]*card, len(p.cards))
	for _, c := range p.cards {
		known[c.id] = c
	}
	count := len(known)
	for _, d := range devices {
		if known[d.ID] == nil {
			count++
		}
	}
	if count > maxDevices {
		return nil, nil, fmt.Errorf("pool: %d devices: want at most %d", count, maxDevices)
	}
	for _, d := range devices {
		c := known[d.ID]
		if c == nil {
			c = &card{id: d.ID}
			p.cards = append(p.cards, c)
		}
		c.lost = !d.Health.Usable()
		c.bytes = d.MemoryBytes.Or(c.bytes)
		if d.Model != "" { // as it was, if nobody says
			c.table, _ = p.cfg.tableOf(d) // it was looked at above
		}
		lost = append(lost, p.shrink(c)...)
	}
	for _, c := range p.cards {
		transfers = append(transfers, c.settle()...)
	}
	return lost, transfers, nil
}

// shrink gives up reservations until what is left on the card fits.
func (p *Pool) shrink(c *card) []Reservation {
	var lost []Reservation
	for len(c.shares) > 0 {
		slices.SortFunc(c.shares, stay)
		total, used := p.total(c), c.used()
		over := used.Milli > total.Milli || used.Bytes > total.Bytes
		if p.cfg.HostBytes > 0 && !over {
			over = p.wouldSpill() > p.cfg.HostBytes
		}
		if !over && !c.lost {
			break
		}
		last := c.shares[len(c.shares)-1].of
		lost = append(lost, last.report())
		p.remove(last)
	}
	return lost
}

// wouldSpill returns what is spilled once all cards are settled.
func (p *Pool) wouldSpill() int64 {
	var sum int64
	for _, c := range p.cards {
		sum += max(0, c.used().Bytes-c.bytes)
	}
	return sum
}

// Status returns what each device has, in the order of the pool.
func (p *Pool) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Status, len(p.cards))
	for i, c := range p.cards {
		total, used := p.total(c), c.used()
		list[i] = Status{
			Device: c.id, Usable: !c.lost, Total: total, SpilledBytes: c.spilled(), Shares: len(c.shares),
			Available: Amounts{total.Milli - used.Milli, total.Bytes - used.Bytes},
		}
	}
	return list
}

// Amounts returns what the usable devices have together, and what of it is free.
func (p *Pool) Amounts() (total, available Amounts) {
	for _, s := range p.Status() {
		total.Milli += s.Total.Milli
		total.Bytes += s.Total.Bytes
		available.Milli += s.Available.Milli
		available.Bytes += s.Available.Bytes
	}
	return total, available
}
