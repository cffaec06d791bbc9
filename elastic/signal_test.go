package elastic

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPredict(t *testing.T) {
	known := func(v float64) Reading { return Reading{Value: v, Known: true} }
	for _, c := range []struct {
		name     string
		in, out  Readings
		from, to int
	}{
		{"twice the servers", Readings{known(100), known(0.8), known(60)}, Readings{known(100 * 0.2 / 0.6), known(0.4), known(30)}, 2, 4},
		{"half the servers", Readings{known(100), known(0.2), known(10)}, Readings{known(100 * 0.8 / 0.6), known(0.4), known(20)}, 4, 2},
		{"too few", Readings{known(100), known(0.6), known(10)}, Readings{known(math.Inf(1)), known(1.2), known(20)}, 2, 1},
		{"from saturation", Readings{known(100), known(1), known(10)}, Readings{known(100 * 0.01 / 0.5), known(0.5), known(5)}, 1, 2},
		{"without utilization", Readings{known(100), {}, known(10)}, Readings{known(50), {}, known(5)}, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := predict(c.in, c.from, c.to)
			for s := range got {
				require.Equal(t, c.out[s].Known, got[s].Known)
				if math.IsInf(c.out[s].Value, 1) {
					require.True(t, math.IsInf(got[s].Value, 1))
					continue
				}
				require.InDelta(t, c.out[s].Value, got[s].Value, 1e-9)
			}
		})
	}
}

func TestSignalFormat(t *testing.T) {
	for _, c := range []struct {
		s    Signal
		v    float64
		want string
	}{
		{GradientLatency, 63e6, "63ms"},
		{GradientLatency, 50.04e6, "50.04ms"},
		{GradientLatency, 950, "950ns"},
		{GradientLatency, 1234567, "1.235ms"},
		{GradientLatency, 12.3456789e9, "12.35s"},
		{GradientLatency, math.Inf(1), ">10m0s"},
		{Utilization, 0.85, "85%"},
		{Utilization, 0.8512, "85.12%"},
		{Utilization, 1, "100%"},
		{Bandwidth, 80e9, "80Gbps"},
		{Bandwidth, 12345e9, "12345Gbps"},
		{Bandwidth, 1.5e6, "1.5Mbps"},
		{Bandwidth, 0, "0bps"},
	} {
		require.Equal(t, c.want, c.s.Format(c.v))
	}
}

func TestLatencyIsTheWorstOfPushAndProbe(t *testing.T) {
	r := measure([]ServerSample{
		{GradientLatency: 3 * ms, RTT: ms}, {RTT: 7 * ms}, {GradientLatency: 5 * ms, RTT: -1},
	})
	require.Equal(t, Reading{Value: float64(7 * ms), Known: true}, r[GradientLatency])
}
