package accelerator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

func TestVersions(t *testing.T) {
	for code, want := range map[int]string{2307: "2.3.7", 2803: "2.8.3", 20906: "2.9.6", 21805: "2.18.5", 23007: "2.30.7", 11600: "1.16.0", 0: "0.0.0"} {
		require.Equal(t, want, versionOf(code).String())
	}
	require.True(t, Version{2, 10, 0}.AtLeast(Version{2, 9, 6}))
	require.True(t, Version{2, 9, 6}.AtLeast(Version{2, 9, 6}))
	require.False(t, Version{2, 9, 6}.AtLeast(Version{2, 10, 0}))
	require.False(t, Version{1, 16, 0}.AtLeast(Version{2, 0, 0}))
}

// TestVendorNumbers holds the numbers of types and operations that the vendors document. A
// wrong one would be a wrong sum.
func TestVendorNumbers(t *testing.T) {
	family := map[Type]int{
		Int8: 0, Uint8: 1, Int32: 2, Uint32: 3, Int64: 4, Uint64: 5, Float16: 6, Float32: 7, Float64: 8, BFloat16: 9, Float8E4M3: 10, Float8E5M2: 11,
	}
	ascend := map[Type]int{
		Int8: 0, Int32: 2, Float16: 3, Float32: 4, Int64: 5, Uint64: 6, Uint8: 7, Uint32: 9, Float64: 10, BFloat16: 11, Float8E4M3: 15, Float8E5M2: 16,
	}
	seen := 0
	for kind := range typeEnd {
		if kind.Bytes() == 0 {
			continue
		}
		seen++
		require.Equal(t, family[kind], kind.code(NVIDIA), "%v", kind)
		require.Equal(t, family[kind], kind.code(MooreThreads), "%v", kind)
		require.Equal(t, ascend[kind], kind.code(Ascend), "%v", kind)
	}
	require.Len(t, family, seen)
	require.Equal(t, []int{0, 1, 2, 3, 4}, []int{
		opCode(collective.Sum), opCode(collective.Product), opCode(collective.Max), opCode(collective.Min), opCode(collective.Average),
	})
	require.Equal(t, []int{128, 128, 128, 4108}, []int{abi.NVIDIA.IDBytes(), abi.AMD.IDBytes(), abi.MooreThreads.IDBytes(), abi.Ascend.IDBytes()})
	for _, kind := range []collective.Type{collective.Float32, collective.Float64, collective.Float16, collective.BFloat16, collective.Int32, collective.Int64, collective.Uint8} {
		require.Equal(t, kind.String(), Type(kind).String())
		require.Equal(t, kind.Bytes(), Type(kind).Bytes())
	}
}

func TestCapabilities(t *testing.T) {
	all := abi.Finalize | abi.Shrink | abi.Revoke | abi.AllToAll | abi.GroupCalls
	for _, c := range []struct {
		vendor    Vendor
		version   Version
		has       abi.Optional
		operation Operation
		kind      Type
		op        collective.Op
		can       bool
	}{
		{NVIDIA, Version{2, 30, 7}, all, AllReduce, Float8E4M3, collective.Sum, true},
		{NVIDIA, Version{2, 23, 4}, all, AllReduce, Float8E4M3, collective.Sum, false},
		{NVIDIA, Version{2, 23, 4}, all, AllGather, Float8E4M3, 0, true},
		{NVIDIA, Version{2, 18, 5}, all, AllReduce, Int32, collective.Average, true},
		{NVIDIA, Version{2, 9, 6}, all, AllReduce, Float32, collective.Average, false},
		{NVIDIA, Version{2, 9, 6}, all | abi.PremulSum, AllReduce, Float32, collective.Average, true},
		{NVIDIA, Version{2, 9, 6}, all | abi.PremulSum, AllReduce, Int32, collective.Average, false},
		{NVIDIA, Version{2, 9, 6}, all, AllReduce, BFloat16, collective.Sum, false},
		{NVIDIA, Version{2, 18, 5}, abi.GroupCalls, AllToAll, Int8, 0, true},
		{NVIDIA, Version{2, 18, 5}, all, AllReduce, 0, collective.Sum, false},
		{NVIDIA, Version{2, 18, 5}, all, AllReduce, Type(15), collective.Sum, false},
		{NVIDIA, Version{2, 18, 5}, all, AllReduce, Type(200), collective.Sum, false},
		{NVIDIA, Version{2, 18, 5}, all, AllReduce, Float32, 0, false},
		{NVIDIA, Version{2, 18, 5}, all, AllReduce, Float32, collective.Average + 1, false},
		{AMD, Version{2, 21, 5}, all, AllReduce, Float8E5M2, collective.Max, true},
		{MooreThreads, Version{2, 11, 4}, all, AllReduce, Float8E5M2, collective.Max, false},
		{MooreThreads, Version{2, 11, 4}, all, AllReduce, BFloat16, collective.Average, true},
		{Ascend, Version{}, all, AllReduce, Float32, collective.Average, false},
		{Ascend, Version{}, all, AllReduce, BFloat16, collective.Sum, true},
		{Ascend, Version{}, all, AllReduce, BFloat16, collective.Product, false},
		{Ascend, Version{}, all, AllReduce, Int64, collective.Sum, true},
		{Ascend, Version{}, all, ReduceScatter, Int64, collective.Sum, false},
		{Ascend, Version{}, all, AllReduce, Uint8, collective.Sum, false},
		{Ascend, Version{}, all, AllReduce, Float64, collective.Sum, false},
		{Ascend, Version{}, 0, AllToAll, Float64, 0, false},
	} {
		err := capabilitiesOf(c.vendor, c.version, c.has).Supports(c.operation, c.kind, c.op)
		require.Equal(t, c.can, err == nil, "%+v: %v", c, err)
		if err != nil {
			require.ErrorIs(t, err, ErrUnsupported)
			require.ErrorContains(t, err, c.vendor.String())
		}
	}
	require.Error(t, Capabilities{}.Supports(Broadcast, Float32, 0))
	require.Equal(t, capabilitiesOf(AMD, Version{2, 22, 3}, all), capabilitiesOf(AMD, Version{2, 22, 3}, all), "a value")
	require.False(t, capabilitiesOf(Ascend, Version{}, 0).Abort)
	require.True(t, capabilitiesOf(Ascend, Version{}, abi.StreamAbort).Abort)
}

func TestErrorTexts(t *testing.T) {
	require.EqualError(t, &UnsupportedError{AllReduce, Float8E4M3, collective.Sum, NVIDIA, Version{2, 18, 5}},
		"accelerator: unsupported: all-reduce (sum) of float8e4m3 by the library of NVIDIA, version 2.18.5")
	for code, want := range map[int]error{invalidArgument: collective.ErrArgument, remoteError: collective.ErrRankLost} {
		require.ErrorIs(t, &CallError{Vendor: NVIDIA, Code: code}, want)
	}
	require.NotErrorIs(t, &CallError{Vendor: NVIDIA, Code: remoteError, Runtime: true}, collective.ErrRankLost)
	require.ErrorIs(t, &CallError{Vendor: Ascend, Code: ascendRemote}, collective.ErrRankLost)
	require.NotErrorIs(t, &CallError{Vendor: Ascend, Code: remoteError}, collective.ErrRankLost)
	require.Equal(t, []string{"vendor 9", "type 9", "receive"}, []string{Vendor(9).String(), Type(9).String(), Recv.String()})
}

// TestBackends: an Offer of package collective has the libraries by these words.
func TestBackends(t *testing.T) {
	want := []collective.Backend{0, collective.NCCL, collective.RCCL, collective.MCCL, collective.HCCL, 0}
	for i, v := range []Vendor{0, NVIDIA, AMD, MooreThreads, Ascend, 9} {
		require.Equal(t, want[i], v.Backend(), "%v", v)
	}
}

func TestConfig(t *testing.T) {
	_, err := Open(Config{Vendors: []Vendor{0}})
	require.ErrorIs(t, err, collective.ErrArgument)
	_, err = Open(Config{Library: "x"})
	require.ErrorIs(t, err, collective.ErrArgument)
}
