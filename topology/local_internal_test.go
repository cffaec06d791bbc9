package topology

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLocalSearchComesNear compares the local search with the exact one: they agree where
// links have an order, and where links are random the local one reaches most of the total.
func TestLocalSearchComesNear(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for name, c := range map[string]struct {
		share float64
		link  func(i, j int) Link
	}{
		"two boards": {0.85, func(i, j int) Link {
			if i/8 != j/8 {
				return NewLink(KindNode, 0)
			}
			return NewLink(KindNVLink, 1+(i^j)&1)
		}},
		"modules":  {1, func(i, j int) Link { return NewLink([]Kind{KindHCCS, KindSame}[btoi(i/2 == j/2)], 0) }},
		"all even": {1, func(i, j int) Link { return NewLink(KindNVLink, 6) }},
		"random":   {0.8, randomLinks(r)},
	} {
		for _, n := range []int{7, 12, 16} {
			if n == 16 && testing.Short() {
				continue
			}
			g := graphWith(t, n, c.link)
			for k := 1; k <= n; k++ {
				p := g.newProblem(g.Accelerators(), k, nil)
				set, near := p.local()
				require.Len(t, set, k)
				best, total, ok := p.exact(near, math.MaxInt)
				require.True(t, ok)
				require.Len(t, best, k)
				require.LessOrEqual(t, near, total, "%s: %d of %d", name, k, n)
				require.GreaterOrEqual(t, float64(near), c.share*float64(total), "%s: %d of %d", name, k, n)
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// randomLinks returns links that are the same in both directions.
func randomLinks(r *rand.Rand) func(i, j int) Link {
	lanes := [16][16]int{}
	for i := range lanes {
		for j := range i {
			lanes[i][j] = 1 + r.IntN(6)
			lanes[j][i] = lanes[i][j]
		}
	}
	return func(i, j int) Link { return NewLink(KindNVLink, lanes[i][j]) }
}

func graphWith(t *testing.T, n int, link func(i, j int) Link) *Graph {
	devices := make([]Device, n)
	for i := range devices {
		devices[i].Name = fmt.Sprint(i)
	}
	g, err := NewGraph(devices, link)
	require.NoError(t, err)
	return g
}

// TestExactSearchStops: a search without symmetry ends after the given number of steps.
func TestExactSearchStops(t *testing.T) {
	g := graphWith(t, 16, randomLinks(rand.New(rand.NewPCG(1, 1))))
	p := g.newProblem(g.Accelerators(), 5, nil)
	_, _, ok := p.exact(0, maxSteps)
	require.False(t, ok)
	set, err := g.Choose(g.Accelerators(), 5)
	require.NoError(t, err)
	require.Len(t, set, 5)
}

// TestExactForMachines: for two DGX-1V as one node, which have no symmetry but for the two halves,
// the answer is exact for every number but 5 and 6, and it is the same as with all the time there is.
func TestExactForMachines(t *testing.T) {
	lanes := [8]string{"01122000", "10210200", "12020010", "21200001", "20000112", "02001021", "00101202", "00012120"}
	g := graphWith(t, 16, func(i, j int) Link {
		if i/8 != j/8 {
			return NewLink(KindNode, 0)
		}
		if n := int(lanes[i%8][j%8] - '0'); n > 0 {
			return NewLink(KindNVLink, n)
		}
		return NewLink(KindHostBridge, 0)
	})
	for k := 1; k <= 16; k++ {
		p := g.newProblem(g.Accelerators(), k, nil)
		_, near := p.local()
		quick, total, ok := p.exact(near, maxSteps)
		require.Equal(t, k != 5 && k != 6, ok, k)
		if !ok {
			continue
		}
		slow, best, ok := p.exact(-1, math.MaxInt) // without a total to begin with
		require.True(t, ok)
		require.Equal(t, best, total, k)
		require.Equal(t, slow, quick, k)
	}
}
