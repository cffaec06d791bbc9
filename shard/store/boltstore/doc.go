// Package boltstore is a coordination store in one file of the local disk: the
// embedded default, for jobs that run no etcd or ZooKeeper.
//
// It is a store.Memory whose journal is a bbolt file. Reads come from memory;
// every change is on disk, with fsync, before anyone sees it. One process at a
// time holds the file.
//
//	s, err := boltstore.Open(boltstore.Config{Path: "job.store"})
//	defer s.Close()
//
// # Consistency
//
// Linearizable. After a crash the store holds every change that a caller was
// told of, and revisions go on from there. Leases start anew, with their full
// duration, when the file is opened.
//
// # Errors and limits
//
// store.ErrLocked if another process holds the file beyond LockTimeout;
// store.ErrCorrupt if the file is damaged, cut short or not a store: every
// value carries a CRC-32C. Otherwise as package store. The file is created with
// mode 0600.
//
// # Concurrency
//
// All methods may be called from any number of goroutines. Changes wait for
// one another; reads do not wait for the disk.
package boltstore
