package pool

import (
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

// cards returns devices named a, b, ... with the given memories.
func cards(bytes ...int64) []device.Device {
	var list []device.Device
	for i, n := range bytes {
		list = append(list, device.Device{ID: string(rune('a' + i)), MemoryBytes: device.Known(n)})
	}
	return list
}

func newPool(t testing.TB, c Config) *Pool {
	t.Helper()
	p, err := New(c)
	require.NoError(t, err)
	return p
}

// reserve returns the reservation, which must be granted.
func reserve(t testing.TB, p *Pool, r Request) Reservation {
	t.Helper()
	got, _, err := p.Reserve(r)
	require.NoError(t, err)
	return got
}

// on returns the names of a reservation's devices.
func (r Reservation) on() string {
	var names string
	for _, part := range r.Parts {
		names += part.Device
	}
	return names
}

func TestConfig(t *testing.T) {
	_, err := New(Config{
		MemoryFactor: math.NaN(), HostBytes: -1, MaxShares: -1,
		Devices: append(cards(-1, 1<<47), device.Device{ID: "a"}, device.Device{}),
	})
	for _, text := range []string{
		"MemoryFactor NaN: want 1 to 16", "HostBytes -1", "MaxShares -1", `device "a": MemoryBytes -1`, `device "b": MemoryBytes 140737488355328`,
		`device 2: ID "a": want a name of its own`, `device 3: ID ""`,
	} {
		require.ErrorContains(t, err, text)
	}
	for _, factor := range []float64{0.9, -1, math.Inf(1), 16.1} {
		_, err := New(Config{MemoryFactor: factor})
		require.ErrorContains(t, err, "MemoryFactor")
	}
}

func TestRequestsThatNoPoolCanTake(t *testing.T) {
	p := newPool(t, Config{Devices: cards(100)})
	_, _, err := p.Reserve(Request{Devices: -1, Milli: 1001, Bytes: -1, Priority: 10})
	for _, text := range []string{"Devices -1", "Milli 1001: want 0 to 1000", "Bytes -1", "Priority 10: want 0 to 9"} {
		require.ErrorContains(t, err, text)
	}
	_, _, err = p.Reserve(Request{})
	require.ErrorContains(t, err, "Milli and Bytes are 0")
	_, err = p.Release(7)
	require.ErrorIs(t, err, ErrNotReserved)
	require.ErrorContains(t, err, "reservation 7")
	_, err = p.Touch(7)
	require.ErrorIs(t, err, ErrNotReserved)
	_, err = p.Get(7)
	require.ErrorIs(t, err, ErrNotReserved)
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		count   float64
		devices int
		milli   int64
	}{{0.5, 1, 500}, {1, 1, 1000}, {4, 4, 1000}, {0.1, 1, 100}, {0.9, 1, 900}, {1.0 / 3, 1, 333}, {0.0005, 1, 1}} {
		devices, milli, err := Share(c.count)
		require.NoError(t, err)
		require.Equal(t, c.devices, devices)
		require.Equal(t, c.milli, milli)
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.5, 0, 1.5, 0.0004, 4097, 1e300} {
		_, _, err := Share(bad)
		require.ErrorContains(t, err, "want a fraction from 0.001 to 1 or a whole number")
	}
}

// TestTenthsFillADevice: 0.1 + 0.9 is one device, and so are ten tenths.
func TestTenthsFillADevice(t *testing.T) {
	p := newPool(t, Config{Devices: cards(0)})
	milli := func(f float64) int64 {
		_, m, err := Share(f)
		require.NoError(t, err)
		return m
	}
	tenth, rest := reserve(t, p, Request{Milli: milli(0.1)}), reserve(t, p, Request{Milli: milli(0.9)})
	_, _, err := p.Reserve(Request{Milli: milli(0.9)})
	require.EqualError(t, err, "pool: refused for now: a: computing time: want 900, have 0")
	for _, r := range []Reservation{tenth, rest} {
		_, err := p.Release(r.ID)
		require.NoError(t, err)
	}
	var all []Reservation
	for range 10 {
		all = append(all, reserve(t, p, Request{Milli: milli(0.1)}))
	}
	_, _, err = p.Reserve(Request{Milli: milli(1)})
	require.Error(t, err)
	for _, r := range all {
		_, err := p.Release(r.ID)
		require.NoError(t, err)
	}
	reserve(t, p, Request{Milli: milli(1)})
}

// TestDevicesAreDistinct: four of eight divided cards are four cards.
func TestDevicesAreDistinct(t *testing.T) {
	p := newPool(t, Config{Devices: cards(7, 7, 7, 7, 7, 7, 7, 7)})
	r := reserve(t, p, Request{Devices: 4, Milli: 100, Bytes: 1})
	require.Equal(t, "abcd", r.on())
	_, _, err := p.Reserve(Request{Devices: 9, Milli: 100})
	require.EqualError(t, err, "pool: refused for good: number of devices: want 9, have 8")
}

// TestAmong: bundles that own a device each do not share one.
func TestAmong(t *testing.T) {
	p := newPool(t, Config{Devices: cards(1, 1, 1, 1)})
	for _, name := range []string{"a", "b", "c", "d"} {
		require.Equal(t, name, reserve(t, p, Request{Milli: 500, Among: []string{name}}).on())
	}
	_, _, err := p.Reserve(Request{Milli: 600, Among: []string{"c", "b"}})
	require.EqualError(t, err, "pool: refused for now: b: computing time: want 600, have 500")
	_, _, err = p.Reserve(Request{Milli: 1, Among: []string{"x"}})
	require.EqualError(t, err, "pool: refused for good: number of devices: want 1, have 0")
}

func TestPackAndSpread(t *testing.T) {
	for _, c := range []struct {
		spread bool
		want   string
	}{{false, "aaba"}, {true, "abca"}} {
		p := newPool(t, Config{Devices: cards(100, 100, 100), Spread: c.spread})
		got := ""
		for _, milli := range []int64{300, 300, 500, 400} {
			got += reserve(t, p, Request{Milli: milli}).on()
		}
		require.Equal(t, c.want, got)
	}
	p := newPool(t, Config{Devices: cards(100, 50, 70)})
	require.Equal(t, "b", reserve(t, p, Request{Bytes: 40}).on(), "the least memory that fits")
	p = newPool(t, Config{Devices: cards(10, 50, 70), MemoryFactor: 10})
	require.Equal(t, "b", reserve(t, p, Request{Bytes: 40}).on(), "where nothing is spilled")
}

func TestRefusalsNameTheBindingConstraint(t *testing.T) {
	full := func(c Config, taken ...Request) *Pool {
		p := newPool(t, c)
		for _, r := range taken {
			reserve(t, p, r)
		}
		return p
	}
	gone := cards(100, 100)
	gone[1].Health = device.Gone
	cases := []struct {
		name    string
		pool    *Pool
		request Request
		want    Obstacle
		never   bool
	}{
		{"computing time", full(Config{Devices: cards(100)}, Request{Milli: 700}), Request{Milli: 400, Bytes: 1}, Obstacle{"a", Compute, 400, 300}, false},
		{"memory", full(Config{Devices: cards(100)}, Request{Bytes: 70}), Request{Milli: 1, Bytes: 40}, Obstacle{"a", Memory, 40, 30}, false},
		{"memory, ever", full(Config{Devices: cards(100)}), Request{Bytes: 101}, Obstacle{"a", Memory, 101, 100}, true},
		{"memory, over-subscribed", full(Config{Devices: cards(100), MemoryFactor: 1.5}, Request{Bytes: 100}), Request{Bytes: 51}, Obstacle{"a", Memory, 51, 50}, false},
		{"shares", full(Config{Devices: cards(100), MaxShares: 1}, Request{Bytes: 1}), Request{Bytes: 1}, Obstacle{"a", Shares, 1, 0}, false},
		{"host", full(Config{Devices: cards(100), MemoryFactor: 2, HostBytes: 20}, Request{Bytes: 110}), Request{Bytes: 11}, Obstacle{"", HostRoom, 11, 10}, false},
		{"host, ever", full(Config{Devices: cards(100), MemoryFactor: 2, HostBytes: 20}), Request{Bytes: 121}, Obstacle{"", HostRoom, 21, 20}, true},
		{"gone", full(Config{Devices: gone}), Request{Devices: 2, Milli: 1}, Obstacle{"b", Absent, 1, 0}, false},
		{"closest", full(Config{Devices: cards(10, 100)}, Request{Milli: 900, Among: []string{"a"}}), Request{Milli: 200, Bytes: 200}, Obstacle{"b", Memory, 200, 100}, true},
		{"last needed", full(Config{Devices: cards(10, 100, 100)}, Request{Milli: 900, Among: []string{"b"}}), Request{Devices: 2, Milli: 200, Bytes: 100}, Obstacle{"a", Memory, 100, 10}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := c.pool.Status()
			_, _, err := c.pool.Reserve(c.request)
			var refused *RefusalError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.want, refused.Obstacle)
			require.Equal(t, c.never, refused.Never)
			require.Equal(t, before, c.pool.Status(), "a refusal changes nothing")
		})
	}
	_, _, err := cases[9].pool.Reserve(cases[9].request)
	var refused *RefusalError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []Obstacle{{"a", Memory, 100, 10}, {"b", Compute, 200, 100}}, refused.Obstacles)
}

func TestSpillOrder(t *testing.T) {
	p := newPool(t, Config{Devices: cards(100), MemoryFactor: 3})
	low, _, err := p.Reserve(Request{Bytes: 60, Priority: 1})
	require.NoError(t, err)
	high, transfers, err := p.Reserve(Request{Bytes: 60, Priority: 5})
	require.NoError(t, err)
	require.Equal(t, []Transfer{{low.ID, "a", 20, true}}, transfers, "the lower priority goes, in part")
	least, transfers, err := p.Reserve(Request{Bytes: 50, Priority: 0})
	require.NoError(t, err)
	require.Empty(t, transfers, "it has nothing yet that would move")
	require.Equal(t, int64(50), least.Parts[0].SpilledBytes)
	recent, transfers, err := p.Reserve(Request{Bytes: 10, Priority: 1})
	require.NoError(t, err)
	require.Equal(t, []Transfer{{low.ID, "a", 10, true}}, transfers, "of one priority the one that was used last stays")

	transfers, err = p.Touch(low.ID)
	require.NoError(t, err)
	require.Equal(t, []Transfer{{recent.ID, "a", 10, true}, {low.ID, "a", 10, false}}, transfers, "out before in")
	transfers, err = p.Release(high.ID)
	require.NoError(t, err)
	require.Equal(t, []Transfer{{low.ID, "a", 20, false}, {recent.ID, "a", 10, false}, {least.ID, "a", 30, false}}, transfers)
	got, err := p.Get(least.ID)
	require.NoError(t, err)
	require.Equal(t, int64(20), got.Parts[0].SpilledBytes)
	require.Equal(t, []Status{{Device: "a", Usable: true, Total: Amounts{1000, 300}, Available: Amounts{1000, 180}, SpilledBytes: 20, Shares: 3}}, p.Status())
}

func TestDevicesThatGoAndComeBack(t *testing.T) {
	p := newPool(t, Config{Devices: cards(100, 100), MemoryFactor: 2})
	both := reserve(t, p, Request{Devices: 2, Milli: 500, Bytes: 90})
	alone := reserve(t, p, Request{Milli: 100, Bytes: 60, Priority: 9, Among: []string{"a"}})

	lost, transfers, err := p.Update([]device.Device{{ID: "b", Health: device.Gone}})
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, both.ID, lost[0].ID)
	require.Equal(t, []Part{{Device: "a", Taken: Amounts{500, 90}, SpilledBytes: 50}, {Device: "b", Taken: Amounts{500, 90}}}, lost[0].Parts, "as it was")
	require.Empty(t, transfers)
	_, err = p.Release(both.ID)
	require.ErrorIs(t, err, ErrNotReserved)
	require.Equal(t, Status{Device: "b"}, p.Status()[1])
	total, available := p.Amounts()
	require.Equal(t, Amounts{1000, 200}, total)
	require.Equal(t, Amounts{900, 140}, available)

	_, _, err = p.Update([]device.Device{{ID: "b", Health: device.HealthUnknown}, {ID: "c", MemoryBytes: device.Known(int64(5))}, {ID: "d"}})
	require.NoError(t, err)
	require.Equal(t, Amounts{1000, 200}, p.Status()[1].Available, "unknown memory is what it was")
	require.Equal(t, Amounts{1000, 10}, p.Status()[2].Available)
	require.Equal(t, Amounts{1000, 0}, p.Status()[3].Available, "memory that nobody knows is not given out")

	other := reserve(t, p, Request{Bytes: 50, Among: []string{"a"}})
	lost, transfers, err = p.Update(cards(45))
	require.NoError(t, err)
	require.Equal(t, []Reservation{{ID: other.ID, Request: other.Request, Parts: []Part{{Device: "a", Taken: Amounts{0, 50}, SpilledBytes: 10}}}}, lost, "the first that would be spilled")
	require.Equal(t, []Transfer{{alone.ID, "a", 15, true}}, transfers)

	_, _, err = p.Update([]device.Device{{ID: "a", Health: device.Failed}, {ID: ""}})
	require.ErrorContains(t, err, "device 1")
	require.True(t, p.Status()[0].Usable, "nothing has changed")
}

func TestUpdateKeepsWithinTheHost(t *testing.T) {
	p := newPool(t, Config{Devices: cards(100, 100), MemoryFactor: 2, HostBytes: 30})
	keep := reserve(t, p, Request{Bytes: 90, Priority: 5, Among: []string{"a"}})
	drop := reserve(t, p, Request{Bytes: 30, Among: []string{"a"}})
	lost, _, err := p.Update(cards(65))
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.Equal(t, drop.ID, lost[0].ID)
	got, err := p.Get(keep.ID)
	require.NoError(t, err)
	require.Equal(t, int64(25), got.Parts[0].SpilledBytes)
}

func TestPoolsAreBounded(t *testing.T) {
	var many []device.Device
	for i := range maxDevices + 1 {
		many = append(many, device.Device{ID: fmt.Sprint(i), MemoryBytes: device.Known(int64(maxMemoryBytes))})
	}
	_, err := New(Config{Devices: many})
	require.ErrorContains(t, err, "4097 devices: want at most 4096")
	p := newPool(t, Config{Devices: many[1:], MemoryFactor: maxFactor})
	total, available := p.Amounts()
	require.Equal(t, total, available)
	require.Equal(t, int64(1)<<62, total.Bytes)
}

// TestThousandAtOnce: concurrent requests never get more than there is.
func TestThousandAtOnce(t *testing.T) {
	p := newPool(t, Config{Devices: cards(100, 100, 100, 100)})
	var wg sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for range 1000 {
		wg.Go(func() {
			r, _, err := p.Reserve(Request{Milli: 50, Bytes: 4})
			if err != nil {
				return
			}
			_, _ = p.Touch(r.ID)
			mu.Lock()
			defer mu.Unlock()
			granted++
		})
	}
	wg.Wait()
	require.Equal(t, 4*20, granted)
	_, available := p.Amounts()
	require.Equal(t, Amounts{0, 4 * 20}, available)
}

func BenchmarkReserveRelease(b *testing.B) {
	p := newPool(b, Config{Devices: cards(100, 100, 100, 100, 100, 100, 100, 100), MemoryFactor: 2})
	for range 64 {
		reserve(b, p, Request{Milli: 100, Bytes: 20})
	}
	for b.Loop() {
		r, _, _ := p.Reserve(Request{Milli: 100, Bytes: 20})
		_, _ = p.Release(r.ID)
	}
}
