package ps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elasticps/elasticps/internal/stream"
	"github.com/elasticps/elasticps/internal/wire"
)

// How a connection of the data plane begins, and its frames one by one.

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
