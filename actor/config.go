package actor

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"
)

// Limits that are the same on every node.
const (
	// MaxMessageBytes bounds the encoded size of a message between nodes.
	MaxMessageBytes = 64 << 10
	// DefaultCallTimeout is the deadline of a call, cast or connect whose context
	// has none.
	DefaultCallTimeout = 5 * time.Second

	defaultHeartbeat   = 100 * time.Millisecond
	defaultSuspicion   = 500 * time.Millisecond
	defaultMailboxSize = 65_536
	maxMailboxSize     = 1 << 24
	minSecretBytes     = 8
	maxPeers           = 16_384
)

// Config has what a node needs to start. The zero value is a node of its own on a
// free port of 127.0.0.1 that no other process can join.
type Config struct {
	// Name is the node's name, unique in the cluster: 1 to 128 of a-z, 0-9, "-",
	// "_" and ".". Zero: "node-" and 8 random hexadecimal digits.
	Name string
	// Listen is the host:port that other nodes dial; port 0 takes a free one. An
	// address that is not loopback needs TLS or AllowInsecure. Zero: "127.0.0.1:0".
	Listen string
	// Advertise is the host:port that other nodes dial instead of Listen, for a node behind
	// address translation or a proxy. Zero: Listen, with the real port.
	Advertise string
	// AllowInsecure permits a Listen address that is not loopback without TLS. The
	// peers still authenticate each other with Secret, but whoever can change
	// packets on the way can change messages.
	AllowInsecure bool
	// Secret is shared by the nodes of a cluster; each proves to the other that it
	// knows it, without sending it. At least 8 bytes. Zero: with TLS, certificates
	// alone authenticate; without, it is random, so no other process can join.
	Secret string
	// TLS turns on mutual TLS: it needs a certificate and ClientCAs or RootCAs, both
	// sides present and verify certificates. Zero: plain TCP. It is not changed.
	TLS *tls.Config
	// Peers maps names of other nodes to the host:port to dial when a message is to
	// go there. More come by Connect and AddPeer. Nothing is dialled before it is needed.
	Peers map[string]string
	// Heartbeat is the time between probes to each connected peer. Zero: 100 ms.
	Heartbeat time.Duration
	// Suspicion is how long a peer may be silent before it counts as down; at least
	// twice Heartbeat. Zero: 500 ms, or twice Heartbeat if that is longer. What is built
	// on nodes measures its own patience by it, too.
	Suspicion time.Duration
	// MailboxSize bounds the messages that wait in one actor, for actors whose
	// Options give no other bound. Zero: 65,536.
	MailboxSize int
	// Logger gets what an operator should know. Zero: nothing is logged.
	Logger *slog.Logger
	// Observe is told of events; see there.
	Observe Observer
	// Drop, if set, is fault injection for tests: it is asked for each call, cast
	// and answer that this node sends, on any goroutine, and what it returns true
	// for is lost on the way. msg is the error of an answer that is one.
	Drop func(to Ref, msg any) bool
}

// Observer is a set of optional functions that a node calls when something happens.
// They run on the node's own goroutines and must return quickly.
type Observer struct {
	PeerUp      func(name string)            // a connection to a peer is ready
	PeerDown    func(name string, err error) // and is gone, with the cause
	MailboxFull func(to Ref)                 // a message found no room, or had to wait for it
	CastLost    func(to Ref, count uint64)   // that many casts to another node were not handled: their receiver ended first
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "node-" + randomHex(4)
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.Secret == "" && c.TLS == nil {
		c.Secret = randomHex(32)
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = defaultHeartbeat
	}
	if c.Suspicion == 0 {
		c.Suspicion = max(defaultSuspicion, 2*c.Heartbeat)
	}
	if c.MailboxSize == 0 {
		c.MailboxSize = defaultMailboxSize
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails, by its contract
	return hex.EncodeToString(b)
}

// validate reports everything that is wrong with c, which has its defaults.
func (c Config) validate() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	addf := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("actor: "+format, args...))
		}
	}
	add(validateName("node", c.Name, nodeNameBytes))
	add(c.validateListen())
	add(c.validateAdvertise())
	add(c.validateTLS())
	addf(c.Secret != "" && len(c.Secret) < minSecretBytes, "Secret has %d bytes, want at least %d", len(c.Secret), minSecretBytes)
	addf(c.Heartbeat < time.Millisecond, "Heartbeat is %v, want at least 1ms", c.Heartbeat)
	addf(c.Suspicion < 2*c.Heartbeat, "Suspicion is %v, want at least twice Heartbeat, %v", c.Suspicion, 2*c.Heartbeat)
	addf(c.MailboxSize < 1 || c.MailboxSize > maxMailboxSize, "MailboxSize is %d, want 1 to %d", c.MailboxSize, maxMailboxSize)
	addf(len(c.Peers) > maxPeers, "Peers has %d entries, at most %d", len(c.Peers), maxPeers)
	for _, name := range slices.Sorted(maps.Keys(c.Peers)) {
		add(validateName("peer", name, nodeNameBytes))
		add(validateAddress(c.Peers[name]))
		addf(name == c.Name, "Peers has %q, this node itself", name)
	}
	return errors.Join(errs...)
}

func validateAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("actor: address %q: %w", addr, err)
	}
	return nil
}

func (c Config) validateListen() error {
	if err := validateAddress(c.Listen); err != nil {
		return err
	}
	addr, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("actor: Listen address %q: %w", c.Listen, err)
	}
	if !addr.IP.IsLoopback() && c.TLS == nil && !c.AllowInsecure {
		return fmt.Errorf("actor: Listen address %q is not loopback: set TLS, or AllowInsecure to go without", c.Listen)
	}
	return nil
}

// validateAdvertise wants a port that can be dialled: peers that the node has dialled
// learn no more of the address.
func (c Config) validateAdvertise() error {
	if c.Advertise == "" {
		return nil
	}
	err := validateAddress(c.Advertise)
	if err == nil && advertisedPort(c.Advertise) == 0 {
		err = fmt.Errorf("actor: Advertise address %q: want a port other than 0", c.Advertise)
	}
	return err
}

// advertisedPort is the port of an address that is valid.
func advertisedPort(addr string) uint16 {
	_, text, _ := net.SplitHostPort(addr)
	port, _ := net.LookupPort("tcp", text)
	return uint16(port)
}

func (c Config) validateTLS() error {
	if c.TLS == nil {
		return nil
	}
	var errs []error
	if len(c.TLS.Certificates) == 0 && c.TLS.GetCertificate == nil {
		errs = append(errs, errors.New("actor: TLS has no certificate"))
	}
	if c.TLS.ClientCAs == nil && c.TLS.RootCAs == nil {
		errs = append(errs, errors.New("actor: TLS has neither ClientCAs nor RootCAs to verify peers with"))
	}
	if c.TLS.InsecureSkipVerify {
		errs = append(errs, errors.New("actor: TLS has InsecureSkipVerify, peers must be verified"))
	}
	return errors.Join(errs...)
}
