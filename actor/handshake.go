package actor

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// The handshake, four messages, each with a 2-byte length:
//
//	dialer   hello: magic, version, nonce, incarnation, port, name
//	acceptor hello
//	dialer   proof: HMAC-SHA256(secret, "dialer", both hellos, TLS exporter)
//	acceptor verdict: code, text, and its own proof with "acceptor"
//
// Both nonces are in both proofs, so neither can be replayed; the names of the roles
// keep a proof from being reflected; with TLS the exporter (RFC 5705) binds them to
// this TLS session. The dialer proves itself first: who merely dials learns nothing.
const (
	handshakeTimeout = 2 * time.Second
	protocolVersion  = 1
	helloMagic       = "eps\x01"
	nonceBytes       = 32
	maxHandshake     = 512
)

type verdict uint8

const (
	verdictAccepted verdict = iota
	verdictSecret           // the proof does not verify
	verdictBusy             // a connection between the two exists, or is being made
	verdictRefused          // for another reason, which the text tells
)

// identity is what a node says of itself.
type identity struct {
	version     uint16
	nonce       [nonceBytes]byte
	incarnation uint64
	port        uint16
	name        string
}

func (id identity) encode() []byte {
	b := append([]byte(nil), helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, id.version)
	b = append(b, id.nonce[:]...)
	b = binary.LittleEndian.AppendUint64(b, id.incarnation)
	b = binary.LittleEndian.AppendUint16(b, id.port)
	return append(b, id.name...)
}

// decodeHello reads as much as it understands: a hello of another version has the
// magic and the version in the same place.
func decodeHello(b []byte) (identity, error) {
	var id identity
	const versionEnd = len(helloMagic) + 2
	if len(b) < versionEnd || string(b[:len(helloMagic)]) != helloMagic {
		return id, fmt.Errorf("%w: the other side does not speak this protocol", ErrHandshake)
	}
	id.version = binary.LittleEndian.Uint16(b[len(helloMagic):])
	if id.version != protocolVersion {
		return id, nil
	}
	b = b[versionEnd:]
	if len(b) < nonceBytes+10 {
		return id, fmt.Errorf("%w: hello of %d bytes is too short", ErrHandshake, len(b))
	}
	copy(id.nonce[:], b)
	b = b[nonceBytes:]
	id.incarnation = binary.LittleEndian.Uint64(b)
	id.port = binary.LittleEndian.Uint16(b[8:])
	id.name = string(b[10:])
	if err := validateName("peer", id.name, nodeNameBytes); err != nil {
		return id, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	return id, nil
}

// handshaken is a connection after its handshake.
type handshaken struct {
	nc   net.Conn
	peer identity
	addr string // to dial the peer at
	slot *slot
}

// busyError tells that there is, or will be, another connection to the peer.
type busyError struct{ peer string }

func (e *busyError) Error() string { return "a connection to " + e.peer + " exists or is being made" }

// errNoHello is a connection that the other side dropped before it said anything: it
// has too many handshakes under way, or is no such node.
var errNoHello = errors.New("the other side closed the connection before the handshake")

func (w *network) identity() identity {
	id := identity{version: w.version, incarnation: w.n.incarnation, port: w.port, name: w.n.name}
	if addr := w.n.cfg.Advertise; addr != "" {
		id.port = advertisedPort(addr)
	}
	_, _ = rand.Read(id.nonce[:]) // never fails, by its contract
	return id
}

func (w *network) proof(role string, dialer, acceptor, binding []byte) []byte {
	mac := hmac.New(sha256.New, []byte(w.n.cfg.Secret))
	for _, part := range [][]byte{[]byte(role), dialer, acceptor, binding} {
		var size [4]byte
		binary.LittleEndian.PutUint32(size[:], uint32(len(part)))
		mac.Write(size[:])
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// secure runs the TLS handshake if TLS is on, and returns what binds the proofs to it.
func (w *network) secure(ctx context.Context, nc net.Conn, host string) (net.Conn, []byte, error) {
	if w.n.cfg.TLS == nil {
		return nc, nil, nil
	}
	cfg := w.n.cfg.TLS.Clone()
	var tc *tls.Conn
	if host == "" {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		if cfg.ClientCAs == nil {
			cfg.ClientCAs = cfg.RootCAs
		}
		tc = tls.Server(nc, cfg)
	} else {
		if cfg.RootCAs == nil {
			cfg.RootCAs = cfg.ClientCAs
		}
		if cfg.ServerName == "" {
			cfg.ServerName = host
		}
		tc = tls.Client(nc, cfg)
	}
	if err := tc.HandshakeContext(ctx); isBroken(err) {
		return nil, nil, fmt.Errorf("%w: the connection ended in the TLS handshake, which needs TLS on both sides: %w", ErrNodeDown, err)
	} else if err != nil {
		return nil, nil, fmt.Errorf("%w: certificate or TLS: %w", ErrHandshake, err)
	}
	state := tc.ConnectionState()
	binding, err := state.ExportKeyingMaterial("EXPORTER-elasticps-actor", nil, 32)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: TLS exporter: %w", ErrHandshake, err)
	}
	return tc, binding, nil
}

// isBroken reports whether a TLS handshake failed because its connection did, and not because
// one side refused the other. Package tls gives its alerts as errors of the network, too.
func isBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}

// shakeDialing is the dialer's side. On success the slot for the peer is ours.
func (w *network) shakeDialing(ctx context.Context, raw net.Conn, addr string) (*handshaken, error) {
	_ = raw.SetDeadline(handshakeDeadline(ctx)) // a broken connection shows below
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	nc, binding, err := w.secure(ctx, raw, host)
	if err != nil {
		return nil, err
	}
	hello := w.identity().encode()
	if err := writeMessage(nc, hello); err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHello, err)
	}
	answer, err := readMessage(nc)
	if err != nil && w.n.cfg.TLS == nil {
		return nil, fmt.Errorf("%w (does it have TLS, which this node has not?)", noHello(err))
	} else if err != nil {
		return nil, noHello(err)
	}
	peer, err := w.meet(answer)
	if err != nil {
		return nil, err
	}
	s, err := w.claimDial(peer.name)
	if err != nil {
		return nil, err
	}
	if err := w.prove(nc, peer, hello, answer, binding); err != nil {
		w.release(s)
		return nil, err
	}
	if !w.confirm(s) {
		return nil, &busyError{peer.name}
	}
	_ = nc.SetDeadline(time.Time{})
	return &handshaken{nc: nc, peer: peer, addr: addr, slot: s}, nil
}

// meet checks a hello.
func (w *network) meet(hello []byte) (identity, error) {
	peer, err := decodeHello(hello)
	if err != nil {
		return peer, err
	}
	if peer.version != w.version {
		return peer, fmt.Errorf("%w: protocol version %d here, %d there", ErrHandshake, w.version, peer.version)
	}
	if peer.name == w.n.name {
		if peer.incarnation == w.n.incarnation {
			return peer, fmt.Errorf("%w: this is the node %s itself", ErrHandshake, peer.name)
		}
		return peer, fmt.Errorf("%w: the name %s is that of both nodes", ErrHandshake, peer.name)
	}
	return peer, nil
}

// prove sends the dialer's proof and judges the verdict.
func (w *network) prove(nc net.Conn, peer identity, hello, answer, binding []byte) error {
	if err := writeMessage(nc, w.proof("dialer", hello, answer, binding)); err != nil {
		return fmt.Errorf("%w: %w", ErrNodeDown, err)
	}
	b, err := readMessage(nc)
	if err != nil {
		return fmt.Errorf("%w: %s ended the handshake: %w", ErrNodeDown, peer.name, err)
	}
	if len(b) < 1 {
		return fmt.Errorf("%w: empty verdict of %s", ErrHandshake, peer.name)
	}
	switch verdict(b[0]) {
	case verdictAccepted:
		if !hmac.Equal(b[1:], w.proof("acceptor", hello, answer, binding)) {
			return fmt.Errorf("%w: secret of %s is another", ErrHandshake, peer.name)
		}
		return nil
	case verdictSecret:
		return fmt.Errorf("%w: secret of %s is another", ErrHandshake, peer.name)
	case verdictBusy:
		return &busyError{peer.name}
	}
	return fmt.Errorf("%w: %s refused: %.200q", ErrHandshake, peer.name, b[1:])
}

// shakeAccepting is the acceptor's side.
func (w *network) shakeAccepting(ctx context.Context, raw net.Conn) (*handshaken, error) {
	_ = raw.SetDeadline(handshakeDeadline(ctx)) // a broken connection shows below
	nc, binding, err := w.secure(ctx, raw, "")
	if errors.Is(err, io.EOF) {
		return nil, noHello(err) // ergo dials its own listener for each connection that it is given, and hangs up
	} else if err != nil {
		return nil, err
	}
	hello, err := readMessage(nc)
	if err != nil {
		return nil, noHello(err)
	}
	peer, err := decodeHello(hello)
	if err != nil {
		return nil, err
	}
	answer := w.identity().encode()
	if err := writeMessage(nc, answer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	if peer, err = w.meet(hello); err != nil {
		return nil, err // the dialer finds the same in our hello
	}
	proof, err := readMessage(nc)
	if errors.Is(err, io.EOF) {
		return nil, &busyError{peer.name} // the dialer has found another connection, and hung up
	} else if err != nil {
		return nil, fmt.Errorf("%w: %s ended the handshake: %w", ErrHandshake, peer.name, err)
	}
	if !hmac.Equal(proof, w.proof("dialer", hello, answer, binding)) {
		_ = writeMessage(nc, []byte{byte(verdictSecret)}) // told or not, it is refused
		return nil, fmt.Errorf("%w: secret of %s at %s is another", ErrHandshake, peer.name, raw.RemoteAddr())
	}
	s := w.claimAccept(peer.name)
	if s == nil {
		_ = writeMessage(nc, []byte{byte(verdictBusy)}) // it tries again either way
		return nil, &busyError{peer.name}
	}
	accepted := append([]byte{byte(verdictAccepted)}, w.proof("acceptor", hello, answer, binding)...)
	if err := writeMessage(nc, accepted); err != nil {
		w.release(s)
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	_ = nc.SetDeadline(time.Time{})
	return &handshaken{nc: nc, peer: peer, addr: peerAddr(raw, peer.port), slot: s}, nil
}

// peerAddr is where an accepted peer can be dialled: at the host that it came from.
func peerAddr(raw net.Conn, port uint16) string {
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		return ""
	}
	return net.JoinHostPort(host, fmt.Sprint(port))
}

func handshakeDeadline(ctx context.Context) time.Time {
	deadline := time.Now().Add(handshakeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		return d
	}
	return deadline
}

func noHello(err error) error {
	// TLS tells its refusal of our certificate on the first read.
	if strings.Contains(err.Error(), "tls:") {
		return fmt.Errorf("%w: certificate or TLS: %w", ErrHandshake, err)
	}
	if errors.Is(err, errMessageSize) {
		return fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	return fmt.Errorf("%w: %w", errNoHello, err)
}

var errMessageSize = fmt.Errorf("message over %d bytes", maxHandshake)

func writeMessage(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

// readMessage reads one message and no byte beyond it.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint16(size[:])
	if n > maxHandshake {
		return nil, errMessageSize
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

func randomUint64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return binary.LittleEndian.Uint64(b[:])
}
