package collective_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
)

// Every fault of a Config is reported at once, with value and bound.
func TestConfigFaults(t *testing.T) {
	_, err := collective.Join(background(t), collective.Config{
		Rank: 5, Size: 3, Local: &collective.Local{}, Addresses: []string{"127.0.0.1:1"}, Streams: 17, SegmentBytes: 1, Timeout: -1, PeerTimeout: 1,
		Group: strings.Repeat("x", 129), Secret: make([]byte, 5000),
		Algorithms: map[collective.Collective]schedule.Algorithm{collective.Broadcast: schedule.Ring},
	})
	require.ErrorIs(t, err, collective.ErrArgument)
	for _, what := range []string{
		"2 of Local, Store and Addresses", "Rank 5, must be 0 to 2", "1 Addresses, must be 3", "Streams 17", "SegmentBytes 1",
		"Timeout -1ns", "PeerTimeout 1ns", "Group of 129", "Secret of 5000", "broadcast has no algorithm ring",
	} {
		require.ErrorContains(t, err, what)
	}
	_, err = collective.Join(background(t), collective.Config{Local: &collective.Local{}})
	require.ErrorContains(t, err, "Name of 0 bytes")
}

// Case 20: an address beyond the loopback interface needs to be asked for in so many words,
// and a secret.
func TestCase20ListensOnLoopbackOnly(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0"} {
		cfg := collective.Config{Size: 1, Store: memoryStore(t), Listen: listen}
		_, err := collective.Join(background(t), cfg)
		require.ErrorContains(t, err, "only a loopback address", listen)
		cfg.AllowInsecure = true
		_, err = collective.Join(background(t), cfg)
		require.ErrorContains(t, err, "Secret be missing", listen)
	}
	_, err := collective.Join(background(t), collective.Config{Size: 1, Store: memoryStore(t), Listen: "nonsense"})
	require.ErrorIs(t, err, collective.ErrArgument)
}

// Case 20: what a rank says of itself is an address that others can dial; a loopback address of a
// rank of another host is named when it leads to nobody, or to somebody else.
func TestCase20AddressForOthers(t *testing.T) {
	leakless(t)
	secret := []byte("of the test")
	for _, c := range []collective.Config{
		{Listen: "0.0.0.0:0"},
		{Listen: "[::]:0"},
		{Listen: ":0"},
		{Advertise: "0.0.0.0:7000"},
		{Advertise: ":7000"},
		{Advertise: "rank"},
		{Advertise: "rank:0"},
	} {
		c.Size, c.Store, c.Secret, c.AllowInsecure = 1, memoryStore(t), secret, true
		_, err := collective.Join(background(t), c)
		require.ErrorIs(t, err, collective.ErrArgument, "%v", c)
		require.ErrorContains(t, err, "Advertise")
	}
	addresses := freeAddresses(t, 2)
	groups := found(t, 2, func(rank int, c *collective.Config) { // they listen on all interfaces, and are dialed at Addresses
		_, port, err := net.SplitHostPort(addresses[rank])
		require.NoError(t, err)
		c.Local, c.Addresses, c.Listen, c.Secret, c.AllowInsecure, c.TCPOnly = nil, addresses, ":"+port, secret, true, true
	})
	onAll(t, 2, func(rank int) error { return sumOnes(background(t), groups[rank], 1000) })
	for _, whose := range []string{"of another host", "of this one, from another host"} {
		got, err := collective.Reach(background(t), collective.Config{Store: memoryStore(t)}, whose)
		if whose == "of another host" { // and of this network
			require.NoError(t, err)
			require.Equal(t, "tcp", got)
			continue
		}
		require.ErrorIs(t, err, collective.ErrRefused)
		require.ErrorContains(t, err, `member "rank-0" is of another host and gives a loopback address`)
	}
}

// Ranks that do not know the same secret do not come together.
func TestWrongSecretIsRefused(t *testing.T) {
	leakless(t)
	change := byAddresses(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	errs := errorsOf(2, func(rank int) error {
		cfg := collective.Config{Rank: rank, Size: 2}
		change(rank, &cfg)
		cfg.Secret = []byte{byte(rank)}
		_, err := collective.Join(ctx, cfg)
		return err
	})
	require.ErrorIs(t, errs[0], collective.ErrMissing)
	require.ErrorContains(t, errs[1], "secret")
}

// Founders that do not agree on the size, or on who has which rank, are told so.
func TestFoundersDisagree(t *testing.T) {
	leakless(t)
	local := &collective.Local{}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	for name, second := range map[string]collective.Config{
		"size": {Rank: 1, Size: 4},
		"rank": {Rank: 0, Size: 3, Name: "other"},
	} {
		first := collective.Config{Group: name, Rank: 0, Size: 3, Local: local, NoCalibration: true}
		second.Group, second.Local = name, local
		errs := errorsOf(2, func(i int) error {
			_, err := collective.Join(ctx, []collective.Config{first, second}[i])
			return err
		})
		require.ErrorIs(t, errors.Join(errs...), collective.ErrConflict, name) // for whoever comes second
	}
}

// Whatever arrives at a rank's address, it lives, and its group works.
func TestHostileInput(t *testing.T) {
	leakless(t)
	addresses := freeAddresses(t, 2)
	groups := found(t, 2, func(_ int, c *collective.Config) {
		c.Local, c.Addresses, c.Secret = nil, addresses, []byte("of the test")
	})
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		nc, err := net.Dial("tcp", addresses[i%2])
		require.NoError(t, err)
		junk := make([]byte, rng.IntN(300))
		for k := range junk {
			junk[k] = byte(rng.Uint32())
		}
		if i%3 == 0 && len(junk) > 68 { // a length that nobody should allocate
			binary.LittleEndian.PutUint32(junk[64:], 1<<31)
		}
		_, _ = nc.Write(junk) // it may have been refused by then
		_ = nc.Close()
	}
	onAll(t, 2, func(rank int) error { return sumOnes(background(t), groups[rank], 1000) })
}

func TestNames(t *testing.T) {
	for _, s := range []string{
		collective.AllToAll.String(), collective.Float16.String(), collective.Average.String(), schedule.Hierarchical.String(),
	} {
		require.NotContains(t, s, " 9")
	}
	require.Equal(t, "type 99", collective.Type(99).String())
	require.Equal(t, "op 99", collective.Op(99).String())
	require.Equal(t, "collective 99", collective.Collective(99).String())
	require.Zero(t, collective.Type(99).Bytes())
	require.Equal(t, 3, collective.Of(make([]collective.Half, 3)).Len())
	require.Equal(t, collective.BFloat16, collective.Of([]collective.Brain{}).Type())
}
