package shard_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/elasticps/elasticps/shard"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestConversations runs the scripts in testdata. A script is a list of
// commands; the lines under a command that begin with "  " are its output.
// Run with -update to rewrite them, and review the difference as a change of
// the protocol.
//
//	begin OWNER EPOCH ATTEMPT TARGET    start a move of shard 7
//	resume PHASE                        a new coordinator takes over from the store
//	EVENT [reason...]                   feed an event, by its name
//	record [landed KIND]                answer a read; landed: that write took place
//	copy NAME [serving EPOCH]           make a server's copy
//	order NAME KIND EPOCH ATTEMPT       give an order to it
//	fill NAME ATTEMPT                   the stream to it has caught up
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			got := converse(t, string(want))
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(want), got)
		})
	}
}

type conversation struct {
	move    shard.Migration
	store   shard.Record
	effect  shard.Effect
	written map[string]*shard.Record // by store effects, by kind
	copies  map[string]shard.Copy
}

func converse(t *testing.T, script string) string {
	c := conversation{copies: map[string]shard.Copy{}, written: map[string]*shard.Record{}}
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(script))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "  ") {
			continue // former output
		}
		fmt.Fprintln(&out, line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			for _, l := range c.do(t, words) {
				fmt.Fprintln(&out, "  "+l)
			}
		}
	}
	return out.String()
}

func number(t *testing.T, word string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(word, 10, 64)
	require.NoError(t, err)
	return n
}

func (c *conversation) do(t *testing.T, words []string) []string {
	switch words[0] {
	case "begin":
		a := shard.Assignment{Shard: 7, Owner: shard.ServerID(words[1]), Epoch: shard.Epoch(number(t, words[2])), Attempt: number(t, words[3])}
		c.store = shard.Record{Assignment: a}
		return c.step(shard.Begin(c.store, shard.ServerID(words[4])))
	case "resume":
		require.NotNil(t, c.store.Pending)
		require.Equal(t, words[1], c.store.Pending.Phase.String())
		return c.step(shard.Resume(c.store))
	case "copy":
		c.copies[words[1]] = shard.Copy{}
		if len(words) > 2 {
			c.copies[words[1]] = shard.ServeFirst(shard.Assignment{Shard: 7, Epoch: shard.Epoch(number(t, words[3]))})
		}
		return c.show(words[1], nil)
	case "order":
		e := shard.Effect{Shard: 7, Epoch: shard.Epoch(number(t, words[3])), Attempt: number(t, words[4]), Peer: "peer"}
		for k := shard.EffectPersistPending; k <= shard.EffectDone; k++ {
			if k.String() == words[2] {
				e.Kind = k
			}
		}
		require.NotZero(t, e.Kind, words[2])
		var err error
		c.copies[words[1]], err = c.copies[words[1]].Step(e)
		return c.show(words[1], err)
	case "fill":
		var err error
		c.copies[words[1]], err = c.copies[words[1]].Fill(number(t, words[2]))
		return c.show(words[1], err)
	}
	return c.event(t, words)
}

func (c *conversation) event(t *testing.T, words []string) []string {
	ev := shard.Event{Reason: strings.Join(words[1:], " ")}
	for k := shard.EventPersisted; k <= shard.EventAbort; k++ {
		if k.String() == words[0] {
			ev.Kind = k
		}
	}
	require.NotZero(t, ev.Kind, "unknown command %q", words[0])
	if ev.Kind == c.effect.Kind.Success() && c.effect.Record != nil {
		c.store = *c.effect.Record
	}
	if ev.Kind == shard.EventRecord {
		if len(words) > 2 {
			c.store = *c.written[words[2]]
		}
		r := c.store
		ev.Record, ev.Reason = &r, ""
	}
	return c.step(c.move.Step(ev))
}

// step notes what is to be done next and returns the output.
func (c *conversation) step(m shard.Migration, effects []shard.Effect, err error) []string {
	var refused *shard.MoveError
	switch {
	case errors.As(err, &refused):
		return []string{"refused: " + refused.Reason.String()}
	case err != nil:
		return []string{"error: " + err.Error()}
	}
	c.move = m
	var out []string
	for _, e := range effects {
		c.effect = e
		out = append(out, describe(e))
		if e.Record != nil {
			c.written[e.Kind.String()] = e.Record
		}
	}
	if len(effects) == 0 {
		out = append(out, "noted")
	}
	if m.Done() {
		out = append(out, fmt.Sprintf("outcome %v", m.Outcome))
		if m.Reason != "" {
			out = append(out, fmt.Sprintf("failed at %v: %s", m.FailedAt, m.Reason))
		}
	}
	return out
}

func describe(e shard.Effect) string {
	s := fmt.Sprintf("%v epoch=%d attempt=%d", e.Kind, e.Epoch, e.Attempt)
	if e.Server != "" {
		s += fmt.Sprintf(" at %s, peer %s", e.Server, e.Peer)
	}
	if r := e.Record; r != nil {
		s += fmt.Sprintf(" owner=%s", r.Assignment.Owner)
		if r.Pending != nil {
			s += fmt.Sprintf(" pending=%v", r.Pending.Phase)
		}
	}
	return s
}

func (c *conversation) show(name string, err error) []string {
	cp := c.copies[name]
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	return []string{fmt.Sprintf("%v epoch=%d attempt=%d ended=%t acknowledges=%t", cp.State, cp.Epoch, cp.Attempt, cp.Ended, cp.MayAcknowledge(cp.Epoch))}
}
