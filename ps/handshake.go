package ps

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
)

// How a connection of the data plane begins, and its frames one by one.

// dial opens a data connection: to the unix socket on the same machine if there is
// one, else by TCP, and proves to the server that this side knows its token.
func dial(ctx context.Context, to serverInfo, tlsConfig *tls.Config, cfg stream.Config) (*stream.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var localErr error
	var d net.Dialer
	if to.Local != "" && to.Host == stream.HostID() {
		nc, err := d.DialContext(ctx, "unix", to.Local)
		if err == nil {
			return greet(ctx, nc, to, cfg)
		}
		localErr = err // another network namespace, perhaps
	}
	if to.Data == "" {
		return nil, fmt.Errorf("%w: server %q listens on no address that is reached from here", ErrUnavailable, to.ID)
	}
	if to.Secure && tlsConfig == nil {
		return nil, fmt.Errorf("%w: server %q takes TLS only, and this side has none", ErrUnavailable, to.ID)
	}
	nc, err := dialTCP(ctx, to.Data, tlsConfig)
	if err != nil {
		if localErr != nil {
			err = fmt.Errorf("%w; %w", localErr, err)
		}
		return nil, fmt.Errorf("%w: server %q: %w", ErrUnavailable, to.ID, err)
	}
	return greet(ctx, nc, to, cfg)
}

func dialTCP(ctx context.Context, addr string, tlsConfig *tls.Config) (net.Conn, error) {
	if tlsConfig == nil {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	}
	d := tls.Dialer{Config: tlsConfig}
	return d.DialContext(ctx, "tcp", addr)
}

func greet(ctx context.Context, nc net.Conn, to serverInfo, cfg stream.Config) (*stream.Conn, error) {
	conn := stream.New(nc, cfg)
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseWithError(context.Cause(ctx)) })
	err := dialHandshake(ctx, conn, to.Token)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the handshake's error is the cause
		return nil, fmt.Errorf("%w: server %q at %v: %w", ErrUnavailable, to.ID, nc.RemoteAddr(), err)
	}
	return conn, nil
}

// sendFrame sends a frame with a short payload.
func sendFrame(conn *stream.Conn, h *wire.Header, payload []byte) error {
	var raw [wire.HeaderBytes]byte
	h.Length, h.PayloadSum = uint32(len(payload)), wire.Sum(payload)
	h.Encode(raw[:])
	return conn.Send(raw[:], payload)
}

// readFrame reads a frame with a payload of at most limit bytes.
func readFrame(conn *stream.Conn, limit int) (h wire.Header, payload []byte, err error) {
	raw, err := conn.Next(wire.HeaderBytes)
	if err != nil {
		return h, nil, err
	}
	if err := h.Decode(raw); err != nil {
		return h, nil, conn.CloseWithError(err)
	}
	if int(h.Length) > limit {
		return h, nil, conn.CloseWithError(fmt.Errorf("%w: %d bytes, at most %d here", wire.ErrTooLarge, h.Length, limit))
	}
	payload = make([]byte, h.Length)
	if err := conn.ReadFull(payload); err != nil {
		return h, nil, err
	}
	if err := h.CheckPayload(payload); err != nil {
		return h, nil, conn.CloseWithError(err)
	}
	return h, payload, nil
}

// readReply reads a reply without values.
func readReply(conn *stream.Conn) (h wire.Header, text []byte, err error) {
	h, text, err = readFrame(conn, maxReplyText)
	if err == nil && h.Kind != wire.Reply {
		err = conn.CloseWithError(fmt.Errorf("%w: %d, expected a reply", wire.ErrKind, h.Kind))
	}
	return h, text, err
}

// Both ends of a data connection prove that they know the server's token, which
// travels over the control plane only. The nonces make a recorded proof useless.

var errProof = errors.New("ps: peer does not know the token of this server")

func acceptHandshake(conn *stream.Conn, token []byte) error {
	_ = conn.NetConn().SetReadDeadline(time.Now().Add(handshakeTimeout))
	nonce := stream.NewNonce()
	if err := sendFrame(conn, &wire.Header{Kind: wire.Hello}, nonce); err != nil {
		return err
	}
	h, got, err := readFrame(conn, stream.NonceBytes+stream.ProofBytes)
	switch {
	case err != nil:
		return err
	case h.Kind != wire.Auth || len(got) != stream.NonceBytes+stream.ProofBytes:
		return fmt.Errorf("%w: kind %d with %d bytes instead of a proof", wire.ErrKind, h.Kind, len(got))
	case !stream.SameProof(got[stream.NonceBytes:], stream.Proof(token, "client", nonce, got[:stream.NonceBytes])):
		return errProof
	}
	_ = conn.NetConn().SetReadDeadline(time.Time{})
	return sendFrame(conn, &wire.Header{Kind: wire.Reply}, stream.Proof(token, "server", got[:stream.NonceBytes], nonce))
}

func dialHandshake(ctx context.Context, conn *stream.Conn, token []byte) error {
	deadline := time.Now().Add(handshakeTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = conn.NetConn().SetReadDeadline(deadline)
	h, nonce, err := readFrame(conn, stream.NonceBytes)
	if err != nil {
		return err
	}
	if h.Kind != wire.Hello || len(nonce) != stream.NonceBytes {
		return fmt.Errorf("%w: %d instead of a greeting", wire.ErrKind, h.Kind)
	}
	mine := stream.NewNonce()
	if err := sendFrame(conn, &wire.Header{Kind: wire.Auth}, append(mine, stream.Proof(token, "client", nonce, mine)...)); err != nil {
		return err
	}
	_, got, err := readReply(conn)
	if err != nil {
		return err
	}
	if !stream.SameProof(got, stream.Proof(token, "server", mine, nonce)) {
		return errProof
	}
	return conn.NetConn().SetReadDeadline(time.Time{})
}
