package meter_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/meter"
)

const gpu = "device/H100"

// books are what a test believes: for each resource what each tenant has had, by big numbers,
// added up at every step from what it has.
type books struct {
	capacity map[string]int64
	has      map[string]map[string]int64
	had      map[string]map[string]*big.Int
	all      map[string]*big.Int
}

func (b *books) pass(ms int64) {
	add := func(to map[string]*big.Int, name string, amount int64) {
		if to[name] == nil {
			to[name] = new(big.Int)
		}
		to[name].Add(to[name], new(big.Int).Mul(big.NewInt(amount), big.NewInt(ms)))
	}
	for resource, capacity := range b.capacity {
		add(b.all, resource, capacity)
		if b.had[resource] == nil {
			b.had[resource] = make(map[string]*big.Int)
		}
		for tenant, amount := range b.has[resource] {
			add(b.had[resource], tenant, amount)
		}
	}
}

// requireWhole checks that tenants and idle add up to capacity.
func requireWhole(t testing.TB, s meter.Statement) {
	t.Helper()
	for name, u := range s.Resources {
		sum := u.Idle
		for _, q := range u.Tenants {
			sum = sum.Plus(q)
		}
		require.Equal(t, u.Capacity, sum, name)
	}
}

// TestTenantsAndIdleAddUp: whatever comes and goes at whatever times, of amounts up to the
// memory of a large cluster over years.
func TestTenantsAndIdleAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 0))
	m := meter.New(0)
	b := books{make(map[string]int64), make(map[string]map[string]int64), make(map[string]map[string]*big.Int), make(map[string]*big.Int)}
	largest := map[string]int64{gpu: 1000, "memory": 1 << 60, "cpu": 7}
	now := time.Duration(0)
	for range 20_000 {
		step := time.Duration(rng.Int64N(int64(24 * time.Hour)))
		b.pass((now + step).Milliseconds() - now.Milliseconds())
		now += step
		m.Advance(now)
		m.Advance(now - time.Duration(rng.Int64N(int64(time.Hour)))) // a clock that goes back
		resource := []string{gpu, "memory", "cpu"}[rng.IntN(3)]
		if b.has[resource] == nil {
			b.has[resource] = make(map[string]int64)
		}
		taken := int64(0)
		for _, amount := range b.has[resource] {
			taken += amount
		}
		if rng.IntN(8) == 0 {
			capacity := rng.Int64N(largest[resource] + 1)
			if err := m.SetCapacity(resource, capacity); capacity < taken {
				require.ErrorIs(t, err, meter.ErrBalance)
			} else {
				require.NoError(t, err)
				b.capacity[resource] = capacity
			}
			continue
		}
		tenant := string(rune('a' + rng.IntN(5)))
		delta := rng.Int64N(largest[resource]+1) - largest[resource]/2
		if err := m.Take(tenant, resource, delta); b.has[resource][tenant]+delta < 0 || taken+delta > b.capacity[resource] {
			require.True(t, err != nil || delta == 0)
		} else {
			require.NoError(t, err)
			b.has[resource][tenant] += delta
		}
	}
	s := m.Statement()
	requireWhole(t, s)
	require.Equal(t, now.Truncate(time.Millisecond), s.End)
	for resource, u := range s.Resources {
		require.Zero(t, b.all[resource].Cmp(u.Capacity.Big()), resource)
		for tenant, had := range b.had[resource] {
			require.Zero(t, had.Cmp(u.Tenants[tenant].Big()), "%s of %s: %v, %v", resource, tenant, had, u.Tenants[tenant])
		}
	}
}

func TestPeriodsAddUp(t *testing.T) {
	m, whole := meter.New(time.Hour), meter.New(time.Hour)
	sum := meter.Quantity{}
	for i := range 100 {
		for _, m := range []*meter.Meter{m, whole} {
			m.Advance(time.Hour + time.Duration(i)*1_234_567*time.Nanosecond)
			require.NoError(t, m.SetCapacity(gpu, int64(1000+i)))
			require.NoError(t, m.Take("blue", gpu, 3))
			if i == 50 {
				require.NoError(t, m.Take("red", gpu, 5))
				require.NoError(t, m.Take("red", gpu, -5))
			}
		}
		s := m.Close()
		requireWhole(t, s)
		sum = sum.Plus(s.Resources[gpu].Tenants["blue"])
		require.NotContains(t, s.Resources[gpu].Tenants, "red", "it had nothing for any time")
	}
	require.Equal(t, whole.Statement().Resources[gpu].Tenants["blue"], sum)
	require.Equal(t, whole.Statement(), whole.Statement(), "to read changes nothing")
	require.NoError(t, m.Take("blue", gpu, -300))
	require.NoError(t, m.SetCapacity(gpu, 0))
	m.Close()
	require.Empty(t, m.Close().Resources, "what nobody has any more is forgotten")
}

// TestCase40ComponentsCostTheNode: the prices of the components times their amounts are the
// price of the node, with a device in it and without.
func TestCase40ComponentsCostTheNode(t *testing.T) {
	// Relative prices of a core, a GiB and a device, as of a list of prices.
	split := func(price, cores, gib, devices int64) []int64 {
		parts, err := meter.Split(price, []meter.Part{{"cpu", cores, 31_611}, {"memory", gib, 4_237}, {gpu, devices, 950_000}})
		require.NoError(t, err)
		return parts
	}
	rng := rand.New(rand.NewPCG(40, 0))
	for range 1000 {
		price := rng.Int64N(100_000_000)
		parts := split(price, 1+rng.Int64N(256), rng.Int64N(2048), rng.Int64N(17))
		require.Equal(t, price, parts[0]+parts[1]+parts[2])
	}
	plain, fast := split(1_521_000, 32, 120, 0), split(29_389_000, 208, 1872, 8)
	require.Zero(t, plain[2])
	require.InDelta(t, 31_611.0/4_237, float64(fast[0])/208/(float64(fast[1])/1872), 1e-3, "cores and memory keep their proportion beside devices")

	m := meter.New(0)
	require.NoError(t, m.SetCapacity("cpu", 208_000))
	require.NoError(t, m.SetCapacity(gpu, 8000))
	require.NoError(t, m.Take("blue", gpu, 3000))
	require.NoError(t, m.Take("blue", "cpu", 1))
	require.NoError(t, m.Take("red", gpu, 1))
	m.Advance(time.Hour)
	costs := map[string]int64{"cpu": fast[0], gpu: fast[2], "none": 7}
	charges := m.Statement().Charge(costs)
	require.Equal(t, fast[0]+fast[2]+7, charges.Idle+charges.Tenants["blue"]+charges.Tenants["red"])
	require.InDelta(t, 3.0/8*float64(fast[2])+float64(fast[0])/208_000, float64(charges.Tenants["blue"]), 1)

	for want, parts := range map[string][]meter.Part{
		`parts[0] "x": Amount -1`: {{"x", -1, 1}}, "Weight -2": {{"x", 1, -2}}, "none of 1 parts has a worth": {{"x", 1, 0}},
	} {
		_, err := meter.Split(1, parts)
		require.ErrorContains(t, err, want)
	}
	_, err := meter.Split(-1, []meter.Part{{"x", 1, 1}})
	require.ErrorContains(t, err, "price -1")
}

func TestFaultyChanges(t *testing.T) {
	m := meter.New(0)
	require.NoError(t, m.SetCapacity(gpu, 1000))
	require.NoError(t, m.Take("blue", gpu, 600))
	for want, err := range map[string]error{
		`"red" has 0 of device/H100 and takes 401, 400 are free`:    m.Take("red", gpu, 401),
		`"blue" has 600 of device/H100 and takes -601`:              m.Take("blue", gpu, -601),
		`"red" takes 1 of tape, of which there is none`:             m.Take("red", "tape", 1),
		`device/H100: capacity 599, of which 600 are taken`:         m.SetCapacity(gpu, 599),
		`tape: capacity -1, of which 0 are taken`:                   m.SetCapacity("tape", -1),
		`"blue" has 600 of device/H100 and takes -9223372036854775`: m.Take("blue", gpu, -1<<63),
	} {
		require.ErrorIs(t, err, meter.ErrBalance)
		require.ErrorContains(t, err, want)
	}
	m.Advance(time.Hour)
	s := m.Statement()
	require.Equal(t, map[string]meter.Usage{gpu: {
		Capacity: meter.Over(1000, time.Hour), Idle: meter.Over(400, time.Hour), Tenants: map[string]meter.Quantity{"blue": meter.Over(600, time.Hour)},
	}}, s.Resources, "nothing has changed")
	require.InDelta(t, 600, s.Resources[gpu].Tenants["blue"].Hours(), 1e-9)
	require.Equal(t, "2160000000", s.Resources[gpu].Tenants["blue"].String())
	require.Equal(t, meter.Quantity{}, meter.Over(-1, time.Hour))
}
