package topology_test

import (
	"math"
	"testing"

	"github.com/elasticps/elasticps/topology"
	"github.com/stretchr/testify/require"
)

func TestOpticsCost(t *testing.T) {
	unknown := math.NaN()
	for _, c := range []struct {
		name   string
		optics topology.Optics
		want   topology.Cost
	}{
		{"nothing reported", topology.Optics{ReceiveDBm: unknown, LimitDBm: unknown}, 0},
		{"strong", topology.Optics{ReceiveDBm: -1, LimitDBm: -10}, 0},
		{"3 dB", topology.Optics{ReceiveDBm: -7, LimitDBm: -10}, 0},
		{"1.5 dB", topology.Optics{ReceiveDBm: -8.5, LimitDBm: -10}, 500},
		{"at the limit", topology.Optics{ReceiveDBm: -10, LimitDBm: -10}, topology.Down},
		{"dark", topology.Optics{ReceiveDBm: math.Inf(-1), LimitDBm: -10}, topology.Down},
		{"limit unknown", topology.Optics{ReceiveDBm: -40, LimitDBm: unknown}, 0},
		{"few errors", topology.Optics{ReceiveDBm: unknown, ErrorRate: 2.4e-6}, 0},
		{"errors", topology.Optics{ReceiveDBm: unknown, ErrorRate: 2.4e-5}, 500},
		{"too many errors", topology.Optics{ReceiveDBm: unknown, ErrorRate: 1e-3}, topology.Down},
		{"two flaps", topology.Optics{ReceiveDBm: 0, LimitDBm: -10, Flaps: 2}, 200},
		{"many flaps", topology.Optics{ReceiveDBm: 0, LimitDBm: -10, Flaps: math.MaxInt}, topology.Down},
		{"no flaps", topology.Optics{ReceiveDBm: 0, LimitDBm: -10, Flaps: -3}, 0},
		{"the worst counts", topology.Optics{ReceiveDBm: -8.5, LimitDBm: -10, ErrorRate: 2.4e-5, Flaps: 6}, 600},
	} {
		require.Equal(t, c.want, c.optics.Cost(), c.name)
	}
}
