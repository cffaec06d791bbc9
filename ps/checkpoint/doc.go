// Package checkpoint keeps the state of a job in files: it writes them, says when a checkpoint
// is whole, finds the newest one that is, reads it back and exports the model for serving. It
// knows nothing of servers; package ps takes the cut and puts it back.
//
// # Terms
//
// A storage holds named objects: a folder (Folder) or a bucket (package s3store). A checkpoint
// has a name, such as ckpt-00000012, under which there are files of shards, one or more for each
// server, and manifest.json, which is written last. A full checkpoint holds every block of every
// shard; an incremental one, an increment, holds the blocks that have changed since its parent,
// whole, and all of the state that is not in blocks. A block of a dense layer is BlockElems
// values, one of a sparse layer the rows (Rows) whose buckets are there, any number: a row that is
// gone is not in it, so increments need no marks of deletion. A checkpoint's chain is itself and
// what it is an increment to, back to a full one.
//
// # Use
//
//	s := checkpoint.Folder("/data/job")
//	name, err := checkpoint.Next(ctx, s)
//	file, err := checkpoint.WriteFile(ctx, s, name, "0.safetensors", shards, func(w *checkpoint.Writer) error {
//		return w.WriteBlock(0, 0, weights, momentum) // one block after the other
//	})
//	ref, err := checkpoint.Commit(ctx, s, checkpoint.Manifest{Name: name, Model: model, Shards: cut, Files: []checkpoint.File{file}})
//	_, err = checkpoint.Prune(ctx, s, 3)
//
//	c, skipped, err := checkpoint.Latest(ctx, s, "")
//	state, err := c.ReadShard(ctx, 0, weights, []string{"momentum"}, momentum)
//	err = c.Export(ctx, s, "model.safetensors", shard.Float16)
//
// The rows of a sparse layer are written with Writer.WriteRows and read with Checkpoint.ReadRows,
// or, by who serves them, with Checkpoint.ReadTable.
//
// # Files
//
// A file of shards is in the safetensors format: eight bytes with the length of the header, the
// header as JSON, the tensors. Block b of a shard that begins with element a of layer L is
// the tensor "L@n", n = a + b*BlockElems, of type F32 and one dimension; its optimizer slot S
// is "L@n/slot/S". A block of a sparse layer with r rows is "L@n/waiting", bytes with zeros behind
// them up to a multiple of 8; "L@n/ids" and "L@n/state", I64 and U64 of shape [r]; "L@n/weights", F32
// of [r, Dim]; and "L@n/slot/S" of [r, 1] or [r, Dim]. Behind the values are, as bytes, "shard/ID/windows" (push windows) and
// "shard/ID/blocks" (the server's metadata of each block), and as the last tensor "crc32c": the
// CRC-32C of every tensor before it, in the order of the data, four bytes each, the lowest
// first. The metadata "shards" is a JSON array that says of each shard what it is. Values are
// little endian, as on all machines that this module runs on.
//
// A manifest holds the length of each file and one CRC-32C, of its header and its checksums; a
// line with the SHA-256 of the manifest is its end, and that of the parent's manifest names the
// parent. So a torn or foreign file, a flipped bit, a file in another's place and an increment to
// something else are all seen. Checksums are no signatures: whoever may write to the storage may
// change a checkpoint.
//
// The same state gives the same bytes: files hold no time and no name of a machine.
//
// The version of the format is 2 in files with shards of sparse layers, and in manifests that have
// sparse layers, datasets or initializers that came with them. Elsewhere it is 1, as it was
// before, and older versions of this module read it.
//
// # Concurrency
//
// Functions and the methods of Checkpoint may be called from any number of goroutines; a Writer
// belongs to one. One process at a time should commit and prune in one storage; any number may
// write files of different names and read.
//
// # Errors
//
// *Error names the checkpoint, the file and the part. Callers branch on ErrNotFound, ErrDamaged,
// ErrNewer and ErrMismatch. What a storage reports (a full disk, a lost connection) comes through
// and wraps none of them.
//
// # Limits
//
// MaxHeaderBytes, MaxManifestBytes, MaxFiles, MaxChain, MaxSlots, MaxRowsBytes, MaxJobBytes, MaxDatasetsBytes; and those
// of package shard. A manifest or header that says more than it has bytes for is refused before
// memory is taken for it. Writing holds 1 MiB and the header, reading some MiB, and a block of
// rows twice, for each call under way. Every function ends after its context has, as soon as the
// storage lets it: a file system finishes the write or fsync that it is in.
//
// # References
//
// The safetensors format: https://huggingface.co/docs/safetensors, section "Format". CRC-32C: RFC
// 3720, section 12.1. Crash consistency of rename and fsync: Pillai and others, All File Systems
// Are Not Created Equal, OSDI 2014, section 4.
package checkpoint
