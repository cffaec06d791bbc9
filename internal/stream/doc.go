// Package stream carries bytes of frames over one connection for many
// goroutines. It is the layer under the actors' protocol and under the data
// plane; it knows nothing of either's frame format.
//
// # Use
//
//	c := stream.New(nc, stream.Config{})
//	err := c.Send(header, payload) // any goroutine
//	view, err := c.Next(16)        // the one reader
//	err = c.ReadFull(dst)
//
// A [Conn] wraps a net.Conn (TCP, unix socket, TLS, net.Pipe). Small sends are
// gathered: a lone one is written by its caller at once, so that it waits for
// nothing; those of a busy connection are only appended, and one flusher writes all
// that gathered in a single system call. [Conn.Gather] is for one of many callers: the
// first lets the others add theirs before it writes. Large sends go out by scatter-gather
// straight from the callers' slices, those that wait at the same time together, up to
// 1 MiB. [Conn.SendNow] writes what there is room for, for a caller that has to go on. On
// Linux a read fills the caller's slice and the buffer behind it with one system call, and
// TCP wakes the reader only when what it needs is there. [Conn.Detach] is for the few
// connections whose latency counts. In steady state neither side allocates.
//
// # Concurrency and order
//
// Send, Post, Gather, Flush and closing are for any goroutine, reading is for one at a time.
// Each Send is atomic: its bytes are never interleaved with those of another, and sends
// of one goroutine, small or large, leave in call order. Large sends of different
// goroutines leave in the order in which they came.
//
// # Errors
//
// The first error ends the connection and is the error of all calls from then on;
// only input that was buffered by then can still be read. Mistakes in a call's
// arguments (too many slices, a view over the bound) do not end it.
//
// # Limits
//
// Small sends hold at most 2 times Config.MaxPendingBytes of memory, one half being
// written, the other waiting; beyond that Send blocks. A write that takes longer
// than Config.WriteTimeout, however far it came, closes the connection, so one Send
// should carry what the slowest link moves well within it.
package stream
