// Package wire is the frame format of the data plane: gradients, parameters and
// snapshots between workers and servers. It encodes and decodes headers and
// checksums and does nothing else; connections are in internal/stream, meaning is
// in package ps.
//
// A frame is a fixed header of [HeaderBytes] bytes, little endian, followed by at
// most [MaxPayload] bytes of payload. The header has a checksum of its own, so a
// corrupted length can never lead the reader astray, and the checksum of the
// payload (both CRC-32C). A header that fails any check is a typed error; the
// connection that carried it cannot be trusted any further and must be closed.
//
// One frame never carries more than one block of one shard (see package ps), which
// bounds what a receiver has to buffer to MaxPayload.
package wire
