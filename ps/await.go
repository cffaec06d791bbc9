package ps

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/elasticps/elasticps/internal/wire"
	"github.com/elasticps/elasticps/shard"
)

// stuckGrace is how long a transfer may outlast the context of the operation that it
// belongs to, before the connection is given up.
const stuckGrace = time.Second

var errStuck = fmt.Errorf("%w: a transfer stopped for more than %v", ErrUnavailable, stuckGrace)

// receiveRest waits for an answer that is being received into the caller's slice, or
// ends the connection.
func (l *link) receiveRest(c *call) {
	end := time.Now().Add(stuckGrace)
	timer := time.NewTimer(stuckGrace)
	defer timer.Stop()
	for late := false; !late && !c.done.Load(); {
		select {
		case <-c.leg.wake:
		case l.turn <- struct{}{}:
			_ = l.conn.NetConn().SetReadDeadline(end) // a broken connection shows in the read
			_ = l.readWhile(func() bool { return !c.done.Load() })
			<-l.turn
		case <-timer.C:
			late = true
		}
	}
	if c.done.Load() {
		return
	}
	l.fail(errStuck)
	l.turn <- struct{}{}                                   // whoever has it fails at once
	_ = l.readWhile(func() bool { return !c.done.Load() }) // answers with the error
	<-l.turn
}

// readWhile reads replies while more is true. It returns without an error also when
// it was interrupted. The caller has the turn.
func (l *link) readWhile(more func() bool) error {
	for more() {
		err := l.read()
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && l.conn.Err() == nil {
			_ = l.conn.NetConn().SetReadDeadline(time.Time{}) // a broken connection shows in the read
			return nil
		}
		l.fail(err)
		if c := l.filling; c != nil {
			l.opened, l.filling = false, nil
			l.finish(c, l.conn.Err())
		}
		return l.conn.Err()
	}
	return nil
}

// read reads one reply, or goes on with one whose reader was interrupted.
func (l *link) read() error {
	if !l.opened {
		raw, err := l.conn.Next(wire.HeaderBytes)
		if err != nil {
			return err
		}
		if err := l.reply.Decode(raw); err != nil {
			return err
		}
		if l.reply.Kind != wire.Reply {
			return fmt.Errorf("%w: %d, expected a reply", wire.ErrKind, l.reply.Kind)
		}
		l.opened, l.filled, l.sum = true, 0, 0
		l.filling = l.take(l.reply.Request)
	}
	var err error
	switch c := l.filling; {
	case c == nil:
		err = l.skip()
	case reads(c.header.Kind) && code(l.reply.Code) == codeOK:
		err = l.readValues(c)
	default:
		err = l.readText(c)
	}
	if err != nil {
		return err
	}
	if c := l.filling; c != nil {
		l.filling = nil
		l.finish(c, nil)
	}
	l.opened = false
	return nil
}

func (l *link) readValues(c *call) error {
	h, t := &l.reply, shard.DType(c.header.Encoding)
	if int(h.Count) != len(c.values) || int64(h.Length) != t.Size()*int64(h.Count) || h.Encoding != c.header.Encoding ||
		h.Shard != c.header.Shard || h.Offset != c.header.Offset {
		return fmt.Errorf("%w: reply of %d elements to a request for %d", wire.ErrTooLarge, h.Count, len(c.values))
	}
	c.out, c.text = outcome{}, ""
	if t != shard.Float32 {
		view, err := l.conn.Next(int(h.Length))
		if err == nil {
			err = h.CheckPayload(view)
		}
		if err == nil {
			decode(c.values, view, t)
		}
		return err
	}
	dst := wire.Bytes(c.values)
	n, err := l.conn.Read(dst[l.filled:])
	if l.filled += n; err != nil {
		return err
	}
	return h.CheckPayload(dst)
}

func (l *link) readText(c *call) error {
	h := &l.reply
	if h.Length > maxReplyText {
		return fmt.Errorf("%w: reply text of %d bytes, at most %d", wire.ErrTooLarge, h.Length, maxReplyText)
	}
	c.out, c.text = outcome{code: code(h.Code), to: owner{epoch: shard.Epoch(h.Epoch)}}, ""
	if h.Length == 0 {
		return nil
	}
	text, err := l.conn.Next(int(h.Length))
	if err != nil {
		return err
	}
	c.text = string(text)
	return h.CheckPayload(text)
}

// skip reads past a reply that nobody waits for any more.
func (l *link) skip() error {
	h := &l.reply
	for rest := int(h.Length) - l.filled; rest > 0; rest = int(h.Length) - l.filled {
		view, err := l.conn.Next(min(rest, 4096))
		if err != nil {
			return err
		}
		l.filled += len(view)
		l.sum = wire.Extend(l.sum, view)
	}
	if l.sum != h.PayloadSum {
		return h.ChecksumError()
	}
	return nil
}
