// Package s3store keeps checkpoints in a bucket of Amazon S3 or of a server that speaks its
// protocol.
//
// # Terms
//
// A bucket holds objects under keys. A multipart upload puts an object together from parts; it is
// visible when it has been completed, and one that is neither completed nor aborted takes up
// room: List shows it with checkpoint.PartialSuffix, and Remove aborts it.
//
// # Use
//
//	s, err := s3store.New(s3store.Config{Endpoint: "s3.eu-central-1.amazonaws.com", Region: "eu-central-1", Bucket: "b", Prefix: "jobs/7"})
//	c, skipped, err := checkpoint.Latest(ctx, s, "")
//
// # Concurrency
//
// A Store may be used from any number of goroutines and processes.
//
// # Errors
//
// What the server says is wrapped; an object that is not there gives checkpoint.ErrNotFound. Requests
// that fail for a moment are repeated. A bucket that is not there or may not be read is an error and
// never taken for an empty one.
//
// # Limits
//
// A Put holds two parts in memory, 16 MiB by default; more for objects over 78 GiB, because an object
// has at most 10,000 parts. An object has at most 5 TiB.
//
// # References
//
// Amazon Simple Storage Service API Reference, "Multipart upload limits" and "Consistency model".
package s3store
