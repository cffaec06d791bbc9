package pool

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

// events runs a pool through the events that the bytes say and checks the invariants after
// each of them, with books of its own: what moves must add up to what is spilled.
func events(t *testing.T, script []byte) {
	next := func() int64 {
		if len(script) == 0 {
			return 0
		}
		v := script[0]
		script = script[1:]
		return int64(v)
	}
	c := Config{
		MemoryFactor: 1 + float64(next()%8)/4, HostBytes: next() % 64, MaxShares: int(next() % 6), Spread: next()%2 == 1,
		Devices: cards(next(), next(), next()),
	}
	if next()%2 == 1 { // of a chip that says what it is, and one that does not
		c.Devices[0].Model, c.Devices[0].MemoryBytes = "cut", device.Known(int64(100))
		c.Tables = []Table{{"cut", 100, []Template{{"quarter", 250, 20}, {"memory", 100, 60}, {"half", 500, 50}}}}
	}
	b := books{pool: newPool(t, c), cfg: c, spilled: make(map[place]int64)}
	for len(script) > 0 {
		switch next() % 5 {
		case 0, 1:
			b.reserve(t, Request{Devices: int(next() % 4), Milli: next() * 4, Bytes: next() % 128, Priority: int(next() % 10)})
		case 2:
			b.release(t, next())
		case 3:
			b.touch(t, next())
		case 4:
			b.update(t, device.Device{
				ID: string(rune('a' + next()%4)), Health: device.Health(next() % 5),
				MemoryBytes: device.Figure[int64]{Value: next(), Known: next()%2 == 0},
			})
		}
		b.check(t)
	}
}

type place struct {
	id     ID
	device string
}

// books are what the test believes of a pool.
type books struct {
	pool    *Pool
	cfg     Config
	held    []Reservation
	spilled map[place]int64
}

func (b *books) reserve(t *testing.T, r Request) {
	if r.Milli > WholeMilli {
		r.Milli = WholeMilli
	}
	if r.Milli == 0 && r.Bytes == 0 {
		r.Milli = 1
	}
	got, transfers, err := b.pool.Reserve(r)
	if err != nil {
		var refused *RefusalError
		require.ErrorAs(t, err, &refused)
		require.Less(t, refused.Have, refused.Want)
		return
	}
	require.Len(t, got.Parts, max(1, r.Devices))
	b.move(transfers)
	for i, part := range got.Parts {
		for _, other := range got.Parts[:i] {
			require.NotEqual(t, other.Device, part.Device)
		}
		b.spilled[place{got.ID, part.Device}] = part.SpilledBytes
	}
	b.held = append(b.held, got)
}

func (b *books) release(t *testing.T, n int64) {
	if len(b.held) == 0 {
		return
	}
	i := int(n) % len(b.held)
	r := b.held[i]
	b.held = append(b.held[:i:i], b.held[i+1:]...)
	transfers, err := b.pool.Release(r.ID)
	require.NoError(t, err)
	b.forget(r)
	b.move(transfers)
}

func (b *books) touch(t *testing.T, n int64) {
	if len(b.held) == 0 {
		return
	}
	transfers, err := b.pool.Touch(b.held[int(n)%len(b.held)].ID)
	require.NoError(t, err)
	b.move(transfers)
}

func (b *books) update(t *testing.T, d device.Device) {
	lost, transfers, err := b.pool.Update([]device.Device{d})
	require.NoError(t, err)
	for _, r := range lost {
		b.forget(r)
		for i := range b.held {
			if b.held[i].ID == r.ID {
				b.held = append(b.held[:i:i], b.held[i+1:]...)
				break
			}
		}
	}
	b.move(transfers)
}

func (b *books) forget(r Reservation) {
	for _, part := range r.Parts {
		delete(b.spilled, place{r.ID, part.Device})
	}
}

func (b *books) move(transfers []Transfer) {
	for _, t := range transfers {
		sign := int64(-1)
		if t.Out {
			sign = 1
		}
		b.spilled[place{t.Reservation, t.Device}] += sign * t.Bytes
	}
}

func (b *books) check(t *testing.T) {
	used, spilled, shares := map[string]Amounts{}, map[string]int64{}, map[string]int{}
	for _, r := range b.held {
		now, err := b.pool.Get(r.ID)
		require.NoError(t, err)
		require.Equal(t, r.Request, now.Request)
		for _, part := range now.Parts {
			require.Equal(t, b.spilled[place{r.ID, part.Device}], part.SpilledBytes, "what moved adds up")
			require.GreaterOrEqual(t, part.SpilledBytes, int64(0))
			require.LessOrEqual(t, part.SpilledBytes, part.Taken.Bytes)
			require.GreaterOrEqual(t, part.Taken.Milli, r.Request.Milli)
			require.GreaterOrEqual(t, part.Taken.Bytes, r.Request.Bytes)
			if part.Device != "a" || b.cfg.Tables == nil {
				require.Equal(t, Amounts{r.Request.Milli, r.Request.Bytes}, part.Taken)
			}
			u := used[part.Device]
			used[part.Device] = Amounts{u.Milli + part.Taken.Milli, u.Bytes + part.Taken.Bytes}
			spilled[part.Device] += part.SpilledBytes
			shares[part.Device]++
		}
	}
	var sum int64
	for _, s := range b.pool.Status() {
		u := used[s.Device]
		require.GreaterOrEqual(t, s.Available.Milli, int64(0))
		require.GreaterOrEqual(t, s.Available.Bytes, int64(0))
		require.Equal(t, s.Total, Amounts{s.Available.Milli + u.Milli, s.Available.Bytes + u.Bytes})
		require.Equal(t, spilled[s.Device], s.SpilledBytes)
		require.Equal(t, shares[s.Device], s.Shares)
		physical := int64(float64(s.Total.Bytes)/b.cfg.MemoryFactor + 1)
		if s.Device == "a" && b.cfg.Tables != nil {
			physical = s.Total.Bytes
		}
		require.LessOrEqual(t, u.Bytes-s.SpilledBytes, physical, "what is not spilled fits")
		if b.cfg.MaxShares > 0 {
			require.LessOrEqual(t, s.Shares, b.cfg.MaxShares)
		}
		sum += s.SpilledBytes
	}
	if b.cfg.HostBytes > 0 {
		require.LessOrEqual(t, sum, b.cfg.HostBytes)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte{4, 40, 0, 0, 100, 100, 100, 0, 2, 50, 120, 1, 0, 1, 50, 120, 5, 0, 3, 10, 127, 0, 3, 0, 2, 1, 4, 0, 4, 50, 0, 3, 1, 0, 2, 250, 90, 9})
	f.Add([]byte{0, 0, 3, 1, 255, 10, 60, 0, 1, 1, 1, 1, 4, 1, 3, 9, 1, 0, 3, 100, 5, 5, 4, 1, 0, 9, 1, 2, 0})
	f.Fuzz(events)
}

func TestInvariantsAfterAnyEvents(t *testing.T) {
	state := uint64(1)
	for range 100 {
		script := make([]byte, 250)
		for i := range script {
			state = state*6364136223846793005 + 1442695040888963407
			script[i] = byte(state >> 56)
		}
		events(t, script)
	}
}
