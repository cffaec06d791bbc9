package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/stream"
)

// A proof depends on the secret, the side and both nonces, and on nothing else.
func TestProof(t *testing.T) {
	a, b := stream.NewNonce(), stream.NewNonce()
	require.Len(t, a, stream.NonceBytes)
	require.NotEqual(t, a, b)
	proof := stream.Proof([]byte("secret"), "client", a, b)
	require.Len(t, proof, stream.ProofBytes)
	require.True(t, stream.SameProof(proof, stream.Proof([]byte("secret"), "client", a, b)))
	for name, other := range map[string][]byte{
		"secret": stream.Proof([]byte("Secret"), "client", a, b),
		"side":   stream.Proof([]byte("secret"), "server", a, b),
		"order":  stream.Proof([]byte("secret"), "client", b, a),
		"nonce":  stream.Proof([]byte("secret"), "client", a, stream.NewNonce()),
		"length": proof[:31],
	} {
		require.False(t, stream.SameProof(proof, other), name)
	}
}
