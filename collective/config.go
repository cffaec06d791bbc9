package collective

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/shard/store"
)

// Limits of a Config.
const (
	MaxStreams      = 16
	MaxNameBytes    = 128
	MaxSecretBytes  = 4 << 10
	minSegmentBytes = 8
)

// Store is what a group needs of a coordination store; every store.Store is one.
type Store interface {
	store.KV
	store.Watcher
}

// Config says which group a rank joins and how. Exactly one of Local, Store and
// Addresses is needed.
type Config struct {
	// Group is the name of the group. One name is used for one group and its successors;
	// a new start needs another. Default "default".
	Group string
	// Rank and Size make this rank a founder of the group: it begins when all Size of them
	// are there. Size 0: a newcomer to a group that exists, which takes it in when its
	// members call Grow.
	Rank, Size int
	// Name tells members apart, over all groups that follow each other. Default "rank-"
	// and Rank for founders; newcomers must have one.
	Name string

	// Local joins ranks of this process: all of them use the same one.
	Local *Local
	// Store is where the ranks find each other.
	Store Store
	// Addresses are those of all founders in the order of the ranks, where there is no
	// store; a newcomer has its own at the end. Each rank listens on its own.
	Addresses []string

	// Listen is the TCP address that other ranks connect to. Default: a free port of the
	// loopback interface, or the own one of Addresses. Anything but a loopback address
	// needs TLS or AllowInsecure, and a Secret.
	Listen string
	// Advertise is the address under which other ranks reach Listen, if it is another. Default: the
	// own one of Addresses, else Listen, which must then be one that others can dial.
	Advertise string
	// Secret is known to all ranks, and proven by both ends of each connection.
	Secret []byte
	// TLS secures the connections; both ends show a certificate.
	TLS *tls.Config
	// AllowInsecure lets data cross a network without TLS.
	AllowInsecure bool
	// TCPOnly does without unix sockets between ranks on one host.
	TCPOnly bool
	// SocketsOnly does without shared memory between ranks on one host.
	SocketsOnly bool
	// Node is the failure domain with fast links inside. Default: the host.
	Node string
	// Streams is the number of connections that share the data of calls between two ranks, and
	// of as many others that share that of messages. Default 1 on one host, 4 between hosts.
	Streams int

	// Timeout bounds calls, Join, Shrink and Grow where their context has no deadline.
	// Default 30 s.
	Timeout time.Duration
	// PeerTimeout is how long a rank may be silent, not even answering in the background,
	// before it is taken for dead. The death of a process is seen at once. Default 10 s.
	PeerTimeout time.Duration

	// Deterministic combines every element in the order of the ranks, so that the bits of
	// a result depend on neither the size of an operation nor on how elements are
	// fused into operations. It leaves Flat and Direct: for float32 about as fast on large
	// buffers as the others, and slower on those of some hundred kilobytes.
	Deterministic bool
	// Algorithms forces the algorithm of an operation. All ranks need the same.
	Algorithms map[Collective]schedule.Algorithm
	// SegmentBytes forces the size of segments, up to 1 MiB. All ranks need the same.
	SegmentBytes int
	// NoCalibration leaves out the measurements at the beginning, and chooses algorithms by
	// typical numbers, not by how long calls take. They are left out if one rank says so.
	NoCalibration bool

	// Offer is what this rank brings to the choice of backends; see Group.Select.
	Offer Offer

	// Log gets what happens in the background. Default: nothing is logged.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Group == "" {
		c.Group = "default"
	}
	if c.Name == "" && c.Size > 0 {
		c.Name = fmt.Sprintf("rank-%d", c.Rank)
	}
	if c.Rank >= 0 && c.Rank < len(c.Addresses) {
		own := c.Addresses[c.Rank]
		c.Listen = cmp.Or(c.Listen, own)
		if _, port, err := net.SplitHostPort(own); err == nil && port != "0" {
			c.Advertise = cmp.Or(c.Advertise, own)
		}
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.PeerTimeout == 0 {
		c.PeerTimeout = 10 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports every fault at once.
func (c *Config) validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, argument(format, args...))
		}
	}
	ways := 0
	for _, given := range []bool{c.Local != nil, c.Store != nil, len(c.Addresses) > 0} {
		if given {
			ways++
		}
	}
	fault(ways != 1, "%d of Local, Store and Addresses are given, must be 1", ways)
	fault(c.Size < 0 || c.Size > schedule.MaxRanks, "Size %d, must be 0 to %d", c.Size, schedule.MaxRanks)
	fault(c.Size > 0 && (c.Rank < 0 || c.Rank >= c.Size), "Rank %d, must be 0 to %d", c.Rank, c.Size-1)
	fault(len(c.Addresses) > 0 && c.Size > 0 && len(c.Addresses) != c.Size, "%d Addresses, must be %d like Size", len(c.Addresses), c.Size)
	fault(len(c.Addresses) > 0 && c.Size == 0 && (c.Rank < 0 || c.Rank >= len(c.Addresses)), "Rank %d, must be the place of its own among %d Addresses", c.Rank, len(c.Addresses))
	fault(len(c.Group) > MaxNameBytes, "Group of %d bytes, must be at most %d", len(c.Group), MaxNameBytes)
	fault(len(c.Name) == 0 || len(c.Name) > MaxNameBytes, "Name of %d bytes, must be 1 to %d", len(c.Name), MaxNameBytes)
	fault(len(c.Secret) > MaxSecretBytes, "Secret of %d bytes, must be at most %d", len(c.Secret), MaxSecretBytes)
	fault(c.Streams < 0 || c.Streams > MaxStreams, "Streams %d, must be 0 to %d", c.Streams, MaxStreams)
	fault(c.SegmentBytes != 0 && (c.SegmentBytes < minSegmentBytes || c.SegmentBytes > maxFrame), "SegmentBytes %d, must be %d to %d", c.SegmentBytes, minSegmentBytes, maxFrame)
	fault(c.Timeout < 0, "Timeout %v, must not be negative", c.Timeout)
	fault(c.PeerTimeout < 8*tick, "PeerTimeout %v, must be at least %v", c.PeerTimeout, 8*tick)
	faults = append(faults, c.Offer.validate())
	if c.Local == nil {
		faults = append(faults, c.checkListen(), c.checkAdvertise())
	}
	for _, op := range slices.Sorted(maps.Keys(c.Algorithms)) {
		if err := known(op, c.Algorithms[op]); err != nil {
			faults = append(faults, argument("Algorithms: %v", err))
		}
	}
	return errors.Join(faults...)
}

// known is nil if an operation has the algorithm.
func known(c Collective, a schedule.Algorithm) error {
	g := &Group{peers: make([]*peer, 1), nodes: []int{0}}
	g.runner.init(g)
	if c == 0 || c >= pointToPoint {
		return fmt.Errorf("no operation %v", c)
	}
	if a == schedule.Shared && (c == AllReduce || c == Barrier) {
		return nil
	}
	_, err := g.plan(&Fingerprint{Collective: c, Algorithm: a, Type: Uint8})
	return err
}

// checkListen keeps data and secrets off networks, unless the caller says otherwise.
func (c *Config) checkListen() error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return argument("Listen %q: %v", c.Listen, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	local := host != "" && err == nil && !slices.ContainsFunc(ips, func(ip net.IP) bool { return !ip.IsLoopback() })
	switch {
	case local:
		return nil
	case c.TLS == nil && !c.AllowInsecure:
		return argument("Listen %q: without TLS or AllowInsecure only a loopback address is allowed", c.Listen)
	case len(c.Secret) == 0:
		return argument("Listen %q: only on a loopback address may the Secret be missing", c.Listen)
	}
	return nil
}

// checkAdvertise wants an address that others can dial.
func (c *Config) checkAdvertise() error {
	address := cmp.Or(c.Advertise, c.Listen)
	host, port, err := net.SplitHostPort(address)
	switch ip := net.ParseIP(host); {
	case c.Advertise == "" && err != nil: // a fault of Listen
		return nil
	case err != nil || c.Advertise != "" && (port == "" || port == "0"):
		return argument("Advertise %q, must be a host and a port other than 0", address)
	case host == "" || ip != nil && ip.IsUnspecified():
		return argument("Advertise %q of Listen %q, must be an address that other ranks can dial", c.Advertise, c.Listen)
	}
	return nil
}

const lookupTimeout = 5 * time.Second
