package ps_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/internal/wire"
)

// damage is one fault at one byte of one connection.
type damage struct {
	toServer bool
	at       int64
	cut      bool // else one bit is changed

	mu   sync.Mutex
	done bool
}

func (d *damage) spoil(toServer bool, offset int64, b []byte) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := d.at - offset
	if d.done || toServer != d.toServer || i < 0 || i >= int64(len(b)) {
		return len(b)
	}
	d.done = true
	if d.cut {
		return int(i)
	}
	b[i] ^= 1 << (d.at % 8)
	return len(b)
}

func (d *damage) happened() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// The connection between a real worker and a real server breaks, or one bit changes,
// at every byte of handshake, push and pull, in both directions: the worker notices
// nothing, and every push has been applied once.
func TestWireDamageAtEveryByte(t *testing.T) {
	together(t)
	const n = 4
	c := newCluster(t, sgdJob(layer("x", n)), patient)
	var d *damage
	var mu sync.Mutex
	p := newFrameProxy(t, func(bool, *wire.Header) fate { return pass })
	p.spoil = func(toServer bool, offset int64, b []byte) int {
		mu.Lock()
		defer mu.Unlock()
		return d.spoil(toServer, offset, b)
	}
	d = &damage{done: true}
	c.proxied("s1", p)
	c.placed()
	w := c.worker("w")
	step := int64(1)
	if testing.Short() {
		step = 5
	}
	pushed := 0
	got := make([]float32, n)
	try := func(next *damage) {
		mu.Lock()
		d = next
		mu.Unlock()
		p.reset()
		name := fmt.Sprintf("to server %v, byte %d, cut %v", next.toServer, next.at, next.cut)
		require.NoError(t, w.Push(c.ctx, "x", vector(n, -1)), name)
		pushed++
		require.NoError(t, w.Pull(c.ctx, "x", got), name)
		require.Equal(t, vector(n, float32(pushed)), got, name)
		require.True(t, next.happened(), name)
	}
	up := int64(wire.HeaderBytes + 64 + wire.HeaderBytes + 4*n + wire.HeaderBytes)          // proof, push, pull
	down := int64(wire.HeaderBytes + 32 + wire.HeaderBytes + 32 + 2*wire.HeaderBytes + 4*n) // greeting, proof, two replies
	for _, cut := range []bool{true, false} {
		for at := int64(0); at < up; at += step {
			try(&damage{toServer: true, at: at, cut: cut})
		}
		for at := int64(0); at < down; at += step {
			try(&damage{at: at, cut: cut})
		}
	}
}
