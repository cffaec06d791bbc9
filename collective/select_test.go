package collective

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/shard"
)

// bargainOf is what ranks with these offers have in common.
func bargainOf(t *testing.T, offers ...Offer) bargain {
	t.Helper()
	r := roster{Epoch: 1}
	for i, o := range offers {
		r.Members = append(r.Members, member{Name: string(rune('a' + i)), Rank: i, Offer: o})
	}
	b, err := agree(&r)
	require.NoError(t, err)
	return b
}

func TestSelect(t *testing.T) {
	nvidia, ascend := Offer{Libraries: []Backend{NCCL}}, Offer{Libraries: []Backend{HCCL}}
	both := Offer{Libraries: []Backend{NCCL, HCCL}}
	force := func(b Backend, o Offer) Offer { o.Force = b; return o }
	host := func(n int) Tensor { return Tensor{Type: Float32, Len: n} }
	on := func(b Backend) Tensor { return Tensor{Type: Float32, Len: 1000, Device: b} }
	// An all-reduce of two ranks: a byte takes 1 ns on the host; to a device and back 2/12 ns,
	// and 1/20 ns there, so that 30 µs of latency are worth it from some 38,000 bytes on.
	m := &model{Ranks: 2, Nodes: 1, Local: 2, Byte: 1e-9, Spread: 1e-9, Far: 1}
	// The same in memory that both share: each byte is copied half as often.
	together := &model{Ranks: 2, Nodes: 1, Local: 2, Byte: 1e-9, Spread: 1e-9, Far: 1, Shared: true}
	for _, c := range []struct {
		name          string
		offers        []Offer
		call          Collective
		tensor        Tensor
		deterministic bool
		want          Backend
		reason        string
	}{
		{"on devices of one vendor", []Offer{nvidia, nvidia}, AllReduce, on(NCCL), false, NCCL, "all ranks have nccl"},
		{"one cannot open it", []Offer{nvidia, {}}, AllReduce, on(NCCL), false, CPU, "b is without nccl: over the host"},
		{"many cannot", []Offer{nvidia, {}, {}, {}, {}}, AllReduce, on(NCCL), false, CPU, "b, c, d and 1 others are without"},
		{"vendors differ", []Offer{nvidia, ascend}, AllReduce, on(NCCL), false, CPU, "b is without nccl"},
		{"on Ascend", []Offer{both, ascend}, Broadcast, on(HCCL), false, HCCL, "all ranks have hccl"},
		{"on the host, no library", []Offer{{}, {}}, AllReduce, host(1 << 20), false, CPU, "no vendor's library on all ranks"},
		{"on the host, no common library", []Offer{nvidia, ascend}, AllReduce, host(1 << 20), false, CPU, "no vendor's library on all ranks"},
		{"on the host, small", []Offer{nvidia, nvidia}, AllReduce, host(8000), false, CPU, "take 36.933µs, not less than 32"},
		{"on the host, large", []Offer{nvidia, nvidia}, AllReduce, host(12000), false, NCCL, "copies and a call of nccl take 40.4µs, less than 48"},
		{"a slow bus", []Offer{nvidia, {Libraries: []Backend{NCCL}, HostBytesPerSecond: 1e9}}, AllReduce, host(1 << 20), false, CPU, "not less"},
		{"in the order of ranks", []Offer{nvidia, nvidia}, AllReduce, on(NCCL), true, CPU, "Deterministic"},
		{"forced to the host", []Offer{force(CPU, nvidia), force(CPU, nvidia)}, AllReduce, on(NCCL), false, CPU, "forced"},
		{"forced to a device", []Offer{force(NCCL, nvidia), force(NCCL, nvidia)}, AllReduce, host(1), true, NCCL, "forced"},
		{"a blob", []Offer{nvidia, nvidia}, pointToPoint, host(1<<20 + 1), false, Streams, "4194308 bytes, more than 4194304"},
		{"a message", []Offer{nvidia, nvidia}, pointToPoint, host(1 << 20), false, CPU, "short message"},
		{"a message between devices", []Offer{nvidia, nvidia}, pointToPoint, on(NCCL), false, NCCL, "all ranks have nccl"},
		{"a blob, forced", []Offer{force(Streams, nvidia), force(Streams, nvidia)}, pointToPoint, on(NCCL), false, Streams, "forced"},
	} {
		b := bargainOf(t, c.offers...)
		got, err := b.choose(c.call, c.tensor, m, c.deterministic)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got.Backend, c.name)
		require.Contains(t, got.Reason, c.reason, c.name)
	}
	b := bargainOf(t, nvidia, nvidia)
	for n, want := range map[int]string{12000: "take 40.4µs, not less than 24µs", 1 << 20: "take 938.765µs, less than 2.097152ms"} {
		got, err := b.choose(AllReduce, host(n), together, false)
		require.NoError(t, err)
		require.Contains(t, got.Reason, want)
	}
}

func TestSelectRefuses(t *testing.T) {
	forced := bargainOf(t, Offer{Force: NCCL, Libraries: []Backend{NCCL}}, Offer{Force: NCCL})
	_, err := forced.choose(AllReduce, Tensor{Type: Float32, Len: 1}, &model{Ranks: 2}, false)
	var refused *BackendError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, NCCL, refused.Backend)
	require.ErrorContains(t, err, "backend nccl: it is forced, but b is without it")
	streams := bargainOf(t, Offer{Force: Streams})
	_, err = streams.choose(AllReduce, Tensor{Type: Float32, Len: 1}, &model{Ranks: 1}, false)
	require.ErrorContains(t, err, "carries messages, no all-reduce")
	require.ErrorIs(t, err, ErrArgument)
}

// The ranks of a group choose the same, whatever each of them has, and log it; those that
// force different backends get no group.
func TestOffersAreExchanged(t *testing.T) {
	join := func(local *Local, offers ...Offer) (groups []*Group, logs []*strings.Builder, err error) {
		type joined struct {
			g   *Group
			log *strings.Builder
			err error
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		ranks := make([]chan joined, len(offers))
		for rank, o := range offers {
			ranks[rank] = make(chan joined, 1)
			go func() {
				var text strings.Builder
				g, err := Join(ctx, Config{Rank: rank, Size: len(offers), Local: local, NoCalibration: true, Offer: o, Log: slog.New(slog.NewTextHandler(&text, nil))})
				ranks[rank] <- joined{g, &text, err}
			}()
		}
		for _, c := range ranks {
			j := <-c
			groups, logs, err = append(groups, j.g), append(logs, j.log), errors.Join(err, j.err)
		}
		return groups, logs, err
	}
	groups, logs, err := join(&Local{}, Offer{Libraries: []Backend{NCCL}}, Offer{Libraries: []Backend{NCCL}}, Offer{})
	require.NoError(t, err)
	for rank, g := range groups {
		c, err := g.Select(AllReduce, Tensor{Type: Float32, Len: 10, Device: NCCL})
		require.NoError(t, err)
		require.Equal(t, CPU, c.Backend)
		require.Contains(t, c.Reason, "rank-2 is without nccl")
		require.Contains(t, logs[rank].String(), "call=all-reduce type=float32 elements=10 backend=cpu reason=")
		m, err := g.SelectMessage(Tensor{Type: Uint8, Len: 5 << 20})
		require.NoError(t, err)
		require.Equal(t, Streams, m.Backend)
		for what, tensor := range map[string]Tensor{
			"tensor of none": {Len: 1}, "-1 elements": {Type: Float32, Len: -1}, "a device of cpu": {Type: Float32, Device: CPU},
		} {
			_, err := g.Select(AllReduce, tensor)
			require.ErrorIs(t, err, ErrArgument)
			require.ErrorContains(t, err, what)
		}
		_, err = g.Select(pointToPoint, Tensor{Type: Float32})
		require.ErrorContains(t, err, "no operation message")
	}
	for _, g := range groups {
		require.NoError(t, g.Close())
	}
	_, _, err = join(&Local{}, Offer{Force: CPU}, Offer{})
	require.ErrorIs(t, err, ErrConflict)
	require.ErrorContains(t, err, `backend cpu is forced by member "rank-0", auto by member "rank-1"`)
	_, _, err = join(&Local{}, Offer{Force: 99, Libraries: []Backend{CPU}, HostBytesPerSecond: -1, DeviceLatency: -1})
	for _, what := range []string{"Force is backend 99, must be one of auto, cpu", "Libraries has cpu", "HostBytesPerSecond is -1", "DeviceLatency is -1ns"} {
		require.ErrorContains(t, err, what)
	}
}

func TestParseBackend(t *testing.T) {
	for b := Backend(0); b < backendEnd; b++ {
		got, err := ParseBackend(b.String())
		require.NoError(t, err)
		require.Equal(t, b, got)
	}
	_, err := ParseBackend("gloo")
	var unknown *UnknownBackendError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "gloo", unknown.Name)
	require.True(t, slices.Contains(unknown.Known, "hccl"))
	require.ErrorContains(t, err, `backend "gloo", must be one of auto, cpu, streams, nccl, rccl, mccl, hccl`)
	require.ErrorIs(t, err, ErrArgument)
}

func TestSelectScheme(t *testing.T) {
	layer := func(name string, rows, columns int) shard.Layer {
		return shard.Layer{Name: name, Shape: []int{rows, columns}}
	}
	table := shard.Layer{Name: "users", Shape: []int{10, 4}, Sparse: true}
	for _, c := range []struct {
		layers []shard.Layer
		forced Scheme
		want   Scheme
		reason string
	}{
		{[]shard.Layer{layer("a", 9999, 9999), layer("b", 1, 19998)}, 0, AllReduceScheme, "dense, with 99999999 parameters, below 100000000"},
		{[]shard.Layer{layer("a", 9999, 9999), layer("b", 1, 19999)}, 0, ServerScheme, "100000000 parameters, not below 100000000"},
		{[]shard.Layer{layer("a", 2, 2), table}, 0, ServerScheme, `layer "users" is sparse`},
		{[]shard.Layer{table}, AllReduceScheme, AllReduceScheme, "forced"},
		{[]shard.Layer{layer("a", 2, 2)}, ServerScheme, ServerScheme, "forced"},
	} {
		got, reason := SelectScheme(shard.Model{Layers: c.layers}, c.forced)
		require.Equal(t, c.want, got, reason)
		require.Equal(t, c.reason, reason)
		parsed, err := ParseScheme(got.String())
		require.NoError(t, err)
		require.Equal(t, got, parsed)
	}
	_, err := ParseScheme("ring")
	require.ErrorContains(t, err, `scheme "ring", must be one of auto, all-reduce, parameter-server`)
}
