package ps

import "github.com/elasticps/elasticps/internal/wire"

// buffer holds the payload of one frame. Its memory is touched once and reused:
// fresh memory is slower than the network.
type buffer struct {
	values [BlockElems]float32
}

func (b *buffer) bytes(n int) []byte        { return wire.Bytes(b.values[:])[:n] }
func (b *buffer) floats(n uint32) []float32 { return b.values[:n] }

// buffers is a bounded list of free buffers.
type buffers chan *buffer

// get returns a free buffer or makes one.
func (f buffers) get() *buffer {
	select {
	case b := <-f:
		return b
	default:
		return new(buffer)
	}
}

// put gives a buffer back; one too many is left to the garbage collector.
func (f buffers) put(b *buffer) {
	if b == nil {
		return
	}
	select {
	case f <- b:
	default:
	}
}
