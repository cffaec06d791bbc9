package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/schedule"
	"github.com/elasticps/elasticps/examples/internal/ranks"
)

// roleRank as the first argument makes the program one of the ranks of a group.
const roleRank = "rank"

// numRanks is the size of the groups that are measured.
const numRanks = 4

// idleTimeout bounds the wait for an order.
const idleTimeout = 10 * time.Minute

// What the first rank asks of the others, in a broadcast of orderLen numbers.
const (
	orderEnd    int64 = iota
	orderCall         // calls of an operation: bytes of the buffer; how many; which
	orderStream       // a raw stream to the next rank: for so many nanoseconds
	orderCopy         // plain copies of memory: for so many nanoseconds; bytes
)

const orderLen = 4

// crewOfRanks is a group, of which this process has the first rank or all.
type crewOfRanks struct {
	groups    []*collective.Group // of this process
	transport string
	algorithm schedule.Algorithm  // of all-reduces; none: the group chooses
	buffers   []collective.Buffer // of each of those
	raw       *rawServer
	next      *rawConn // raw stream to the next rank
	procs     []*exec.Cmd
	cancel    context.CancelFunc
}

// startRanks starts a group over a transport, with one algorithm for its all-reduces or none.
func startRanks(ctx context.Context, transport, secret string, stderr io.Writer, a schedule.Algorithm) (*crewOfRanks, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &crewOfRanks{transport: transport, algorithm: a, cancel: cancel}
	err := c.start(ctx, transport, secret, stderr)
	if err != nil {
		c.close(ctx)
		return nil, fmt.Errorf("bench: ranks over %s: %w", transport, err)
	}
	return c, nil
}

func (c *crewOfRanks) start(ctx context.Context, transport, secret string, stderr io.Writer) error {
	if transport == transportProcess {
		return c.joinLocal(ctx)
	}
	addresses, err := ranks.FreeAddresses(ctx, numRanks)
	if err != nil {
		return err
	}
	for rank := 1; rank < numRanks; rank++ {
		cmd := exec.CommandContext(ctx, executable(), roleRank, "-rank", fmt.Sprint(rank), "-transport", transport, "-algorithm", fmt.Sprint(uint8(c.algorithm)), "-addresses", strings.Join(addresses, ","))
		cmd.Env = append(os.Environ(), secretVariable+"="+secret)
		cmd.Stderr = stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		c.procs = append(c.procs, cmd)
	}
	return c.join(ctx, 0, transport, secret, addresses)
}

// joinLocal makes all ranks of a group in this process.
func (c *crewOfRanks) joinLocal(ctx context.Context) error {
	local := &collective.Local{}
	c.groups = make([]*collective.Group, numRanks)
	return c.each(func(i int) (err error) {
		c.groups[i], err = collective.Join(ctx, collective.Config{Rank: i, Size: numRanks, Local: local, Algorithms: force(c.algorithm)})
		return err
	}, numRanks)
}

// each calls f for n ranks of this process at once.
func (c *crewOfRanks) each(f func(i int) error, n int) error {
	errs := make(chan error, n)
	for i := 1; i < n; i++ {
		go func() { errs <- f(i) }()
	}
	errs <- f(0)
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// join makes one rank, and its raw stream to the next one.
func (c *crewOfRanks) join(ctx context.Context, rank int, transport, secret string, addresses []string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	g, err := collective.Join(ctx, collective.Config{
		Rank: rank, Size: numRanks, Addresses: addresses, Secret: []byte(secret),
		TCPOnly: transport == transportTCP, SocketsOnly: transport == transportUnix, Algorithms: force(c.algorithm),
	})
	if err != nil {
		return err
	}
	c.groups = []*collective.Group{g}
	if transport == transportShared || transport == transportAlloc {
		return nil
	}
	if c.raw, err = startRawServer(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	const room = 128 // for an address
	address := c.raw.tcp
	if transport == transportUnix {
		address = c.raw.unix
	}
	mine, all := make([]uint8, room), make([]uint8, numRanks*room)
	copy(mine, address)
	if err := g.AllGather(ctx, collective.Of(all), collective.Of(mine)); err != nil {
		return err
	}
	next := (rank + 1) % numRanks
	c.next, err = dialRaw(ctx, transport, strings.TrimRight(string(all[next*room:(next+1)*room]), "\x00"), uploading())
	return err
}

// runRank is a rank other than the first, until that one ends it.
func runRank(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("bench rank", flag.ContinueOnError)
	rank := fs.Int("rank", 0, "of this process")
	transport := fs.String("transport", transportTCP, "tcp, unix, shm or alloc")
	algorithm := fs.Uint("algorithm", 0, "of all-reduces by its number; 0: the group chooses")
	addresses := fs.String("addresses", "", "of all ranks")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &crewOfRanks{transport: *transport, algorithm: schedule.Algorithm(*algorithm), cancel: cancel}
	defer c.close(ctx)
	if err := c.join(ctx, *rank, *transport, os.Getenv(secretVariable), strings.Split(*addresses, ",")); err != nil {
		return err
	}
	for {
		order := make([]int64, orderLen)
		if err := c.listen(ctx, order); err != nil {
			return err
		}
		switch order[0] {
		case orderCall:
			if err := c.call(ctx, order[1], order[2], collective.Collective(order[3])); err != nil {
				return err
			}
		case orderStream:
			if _, err := c.stream(ctx, time.Duration(order[1])); err != nil {
				return err
			}
		case orderCopy:
			if _, err := c.copies(ctx, time.Duration(order[1]), order[2]); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

// listen takes the next order. It may be long in coming, while other groups are measured.
func (c *crewOfRanks) listen(ctx context.Context, order []int64) error {
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	return c.groups[0].Broadcast(ctx, collective.Of(order), collective.Of(order), 0)
}

// tell gives the other processes an order.
func (c *crewOfRanks) tell(ctx context.Context, order ...int64) error {
	if len(c.groups) > 1 {
		return nil // there are none
	}
	order = append(order, make([]int64, orderLen-len(order))...)
	return c.groups[0].Broadcast(ctx, collective.Of(order), collective.Of(order), 0)
}

// prepare makes a buffer of some bytes for each rank of this process, unless they are there.
func (c *crewOfRanks) prepare(ctx context.Context, size int64) error {
	if len(c.buffers) > 0 && int64(4*c.buffers[0].Len()) == size {
		return nil
	}
	for _, b := range c.buffers {
		b.Free()
	}
	c.buffers = make([]collective.Buffer, len(c.groups))
	return c.each(func(i int) error {
		c.buffers[i] = collective.Of(gradient(size))
		if c.transport != transportAlloc {
			return nil
		}
		b, err := c.groups[i].Alloc(ctx, collective.Float32, int(size/4))
		if err != nil {
			return err
		}
		x, err := collective.Elements[float32](b)
		if err != nil {
			return err
		}
		copy(x, gradient(size))
		c.buffers[i] = b
		return nil
	}, len(c.groups))
}

// order makes calls of an operation on all ranks, those of other processes too.
func (c *crewOfRanks) order(ctx context.Context, size, times int64, op collective.Collective) error {
	if err := c.tell(ctx, orderCall, size, times, int64(op)); err != nil {
		return err
	}
	return c.call(ctx, size, times, op)
}

// call makes calls of an operation, in place, on all ranks of this process. size is that of the
// whole buffer, of which each rank has a part where the operation knows parts.
func (c *crewOfRanks) call(ctx context.Context, size, times int64, op collective.Collective) error {
	if err := c.prepare(ctx, size); err != nil {
		return err
	}
	return c.each(func(i int) error {
		for range times {
			if err := c.callOnce(ctx, i, op); err != nil {
				return err
			}
		}
		return nil
	}, len(c.groups))
}

func (c *crewOfRanks) callOnce(ctx context.Context, i int, op collective.Collective) error {
	g, x := c.groups[i], c.buffers[i]
	own, part := g.Rank(), x.Len()/numRanks
	switch op {
	case collective.AllReduce:
		return g.AllReduce(ctx, x, x, collective.Average)
	case collective.ReduceScatter:
		return g.ReduceScatter(ctx, x.Slice(own*part, (own+1)*part), x, collective.Average)
	case collective.AllGather:
		return g.AllGather(ctx, x, x.Slice(own*part, (own+1)*part))
	case collective.Broadcast:
		return g.Broadcast(ctx, x, x, 0)
	case collective.AllToAll:
		return g.AllToAll(ctx, x, x)
	}
	return fmt.Errorf("bench: no rows for %v", op)
}

// copies measures plain copies of memory, in all ranks at the same time, in bytes per second
// of all together.
func (c *crewOfRanks) copies(ctx context.Context, d time.Duration, size int64) (float64, error) {
	figures, err := plainCopy(gradient(size), gradient(size))(ctx, d)
	if err != nil {
		return 0, err
	}
	return c.total(ctx, figures[0])
}

// stream measures the raw streams of all ranks to the next ones at the same time, in bytes
// per second of all together.
func (c *crewOfRanks) stream(ctx context.Context, d time.Duration) (float64, error) {
	figures, err := c.next.stream(ctx, d)
	if err != nil {
		return 0, err
	}
	return c.total(ctx, figures[0])
}

// total is the sum of a figure of all ranks.
func (c *crewOfRanks) total(ctx context.Context, figure float64) (float64, error) {
	x := []float64{figure}
	err := c.groups[0].AllReduce(ctx, collective.Of(x), collective.Of(x), collective.Sum)
	return x[0], err
}

// close ends the ranks, in whatever state they are.
func (c *crewOfRanks) close(ctx context.Context) {
	if len(c.groups) > 0 && len(c.procs) > 0 {
		ctx, cancel := context.WithTimeout(ctx, opTimeout)
		_ = c.tell(ctx, orderEnd) // who does not hear it is killed
		cancel()
	}
	for _, g := range c.groups {
		if g != nil {
			_ = g.Close() // everything is thrown away
		}
	}
	if c.next != nil {
		_ = c.next.Close() // nothing is under way
	}
	if c.raw != nil {
		c.raw.close()
	}
	c.cancel()
	for _, p := range c.procs {
		_ = p.Wait() // it was killed, if it did not end by itself
	}
}
