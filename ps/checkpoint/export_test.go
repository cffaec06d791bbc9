package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
)

// Sealed returns a manifest's text with the digest of what it says now.
func Sealed(text string) []byte {
	body := text[:len(text)-digestBytes]
	digest := sha256.Sum256([]byte(body))
	return []byte(body + digestBegin + hex.EncodeToString(digest[:]) + digestEnd)
}
