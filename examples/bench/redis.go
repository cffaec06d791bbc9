package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The same work as the rows about tables, done by a Redis server: values of 64 bytes by id, of
// which a batch is read or written with one command. Redis sets values where this module
// applies an optimizer.

const (
	redisRows  = 1_000_000
	redisBytes = 64 // of a value
	// redisWindow is how many batches are written before the answer to the first is read.
	redisWindow = 8
	redisKey    = "elasticps-bench"
)

// redisOp is a command that reads or writes a batch.
type redisOp struct {
	name   string
	hash   bool // fields of one hash, or keys
	writes bool
}

func redisOps() []redisOp {
	return []redisOp{{"hset", true, true}, {"hmget", true, false}, {"mset", false, true}, {"mget", false, false}}
}

func redisNames() []string {
	var names []string
	for _, op := range redisOps() {
		names = append(names, "redis."+op.name+"."+uniform, "redis."+op.name+"."+zipf)
	}
	return names
}

// command is the operation on a batch as it travels (Redis protocol, RESP2).
func (o redisOp) command(ids []int64, value []byte) []byte {
	args := len(ids) + 1
	if o.hash {
		args++
	}
	if o.writes {
		args += len(ids)
	}
	out := fmt.Appendf(nil, "*%d\r\n", args)
	bulk := func(arg []byte) {
		out = fmt.Appendf(out, "$%d\r\n", len(arg))
		out = append(append(out, arg...), "\r\n"...)
	}
	bulk([]byte(strings.ToUpper(o.name)))
	if o.hash {
		bulk([]byte(redisKey))
	}
	for _, id := range ids {
		bulk(binary.LittleEndian.AppendUint64(nil, uint64(id)))
		if o.writes {
			bulk(value)
		}
	}
	return out
}

// answer is what Redis answers to a batch of n ids that are all there: its length is known
// without parsing it.
func (o redisOp) answer(n int) []byte {
	switch {
	case !o.writes:
		return append(fmt.Appendf(nil, "*%d\r\n", n), bytes.Repeat(fmt.Appendf(nil, "$%d\r\n%s\r\n", redisBytes, redisValue()), n)...)
	case o.hash:
		return []byte(":0\r\n")
	}
	return []byte("+OK\r\n")
}

func redisValue() []byte { return bytes.Repeat([]byte("v"), redisBytes) }

// redisConn is a connection to a Redis server.
type redisConn struct {
	net.Conn
	buffer []byte
}

func dialRedis(ctx context.Context, address string) (*redisConn, error) {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("bench: -redis: %w", err)
	}
	return &redisConn{conn, make([]byte, mib)}, nil
}

// exchange writes commands and reads as many answers, the writes some ahead of the reads. It
// fails, and closes the connection, if the first answer is not the one that is expected.
func (c *redisConn) exchange(ctx context.Context, commands [][]byte, want []byte) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // both ends of it fail
	ahead, sent := make(chan struct{}, redisWindow), make(chan error, 1)
	go func() { sent <- c.writeAll(ctx, commands, ahead) }()
	for i := range commands {
		if err := c.readAnswer(want, i == 0); err != nil {
			cancel()
			return errors.Join(err, <-sent)
		}
		<-ahead
	}
	return <-sent
}

// writeAll writes commands, each when there is room for it in ahead.
func (c *redisConn) writeAll(ctx context.Context, commands [][]byte, ahead chan<- struct{}) error {
	for _, command := range commands {
		select {
		case ahead <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if _, err := c.Write(command); err != nil {
			return err
		}
	}
	return nil
}

// readAnswer reads as many bytes as an answer has, and compares them if check is set.
func (c *redisConn) readAnswer(want []byte, check bool) error {
	for len(want) > 0 {
		got := c.buffer[:min(len(want), len(c.buffer))]
		if _, err := io.ReadFull(c, got); err != nil {
			return fmt.Errorf("bench: answer of Redis: %w", err)
		}
		if check && !bytes.Equal(got, want[:len(got)]) {
			return fmt.Errorf("bench: Redis answers %.80q instead of %.80q", got, want)
		}
		want = want[len(got):]
	}
	return nil
}

// measureRedis measures the Redis server that -redis names; without that it does nothing, unless
// it was asked for.
func (b *bench) measureRedis(ctx context.Context) error {
	if b.redis == "" {
		if slices.ContainsFunc(b.only, func(p string) bool { return strings.HasPrefix(p, "redis") }) {
			return fmt.Errorf("%w: they need -redis ADDRESS", errUsage)
		}
		return nil
	}
	c, err := dialRedis(ctx, b.redis)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.fillRedis(ctx); err != nil {
		return err
	}
	for _, op := range redisOps() {
		for _, distribution := range []string{uniform, zipf} {
			name := "redis." + op.name + "." + distribution
			if !b.selected(name) {
				continue
			}
			p, err := b.alternate(ctx, nil, c.probe(op, distribution))
			if err != nil {
				return err
			}
			r := measured(name, redisBytes*batchIDs, "rows/s", 1, p.product[0])
			r.Note = "values of 64 bytes, batches of " + strconv.Itoa(batchIDs) + ", " + strconv.Itoa(redisWindow) + " in flight"
			if err := b.out.add(r); err != nil {
				return err
			}
		}
	}
	return c.forget(ctx)
}

// fillRedis writes all values, as fields of a hash and as keys.
func (c *redisConn) fillRedis(ctx context.Context) error {
	if err := c.forget(ctx); err != nil {
		return err
	}
	for _, op := range []redisOp{{"hset", true, true}, {"mset", false, true}} {
		for first := 0; first < redisRows; first += batchIDs {
			ids := make([]int64, min(batchIDs, redisRows-first))
			for i := range ids {
				ids[i] = int64(first + i)
			}
			want := op.answer(len(ids))
			if op.hash {
				want = fmt.Appendf(nil, ":%d\r\n", len(ids)) // new ones
			}
			if err := c.exchange(ctx, [][]byte{op.command(ids, redisValue())}, want); err != nil {
				return err
			}
		}
	}
	return nil
}

// forget removes everything from the server's database.
func (c *redisConn) forget(ctx context.Context) error {
	return c.exchange(ctx, [][]byte{[]byte("*1\r\n$7\r\nFLUSHDB\r\n")}, []byte("+OK\r\n"))
}

// probe is the probe of the values per second of one operation.
func (c *redisConn) probe(op redisOp, distribution string) probe {
	var commands [][]byte
	for _, ids := range batchesOf(distribution, redisRows)[:64] {
		commands = append(commands, op.command(ids, redisValue()))
	}
	return func(ctx context.Context, t time.Duration) ([]float64, error) {
		rate, err := drive(ctx, 1, 1, t, func(ctx context.Context, _ int) error { return c.exchange(ctx, commands, op.answer(batchIDs)) })
		return []float64{rate * float64(len(commands)) * batchIDs}, err
	}
}
