package stream

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

// NonceBytes and ProofBytes are the sizes of what the two ends of a connection exchange to
// prove that they know the same secret.
const (
	NonceBytes = 32
	ProofBytes = sha256.Size
)

// NewNonce returns bytes that were never used before, so that a proof that was recorded
// is worth nothing.
func NewNonce() []byte {
	n := make([]byte, NonceBytes)
	_, _ = rand.Read(n) // crashes the program rather than fail
	return n
}

// Proof returns what one side sends to show that it knows the secret: HMAC-SHA256 of its name,
// so that no end can be made to answer for the other, of the nonce that it was sent and of
// its own.
func Proof(secret []byte, side string, a, b []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(side)) // hash.Hash never fails
	m.Write(a)
	m.Write(b)
	return m.Sum(nil)
}

// SameProof compares two proofs, in a time that says nothing about them.
func SameProof(a, b []byte) bool { return hmac.Equal(a, b) }
