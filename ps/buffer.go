package ps

import "github.com/elasticps/elasticps/internal/wire"

// buffer holds the payload of one frame. Its memory is touched once and reused:
// fresh memory is slower than the network.
type buffer struct {
	values [BlockElems]float32
}

func (b *buffer) bytes(n int) []byte        { return wire.Bytes(b.values[:])[:n] }
func (b *buffer) floats(n uint32) []float32 { return b.values[:n] }

type buffers = freeList[buffer]

// keptBuffers is how many buffers a server keeps for later frames: 16 MiB.
const keptBuffers = 64

// freeList is a bounded list of what may be used again.
type freeList[T any] chan *T

// get returns a free one or makes one.
func (f freeList[T]) get() *T {
	select {
	case x := <-f:
		return x
	default:
		return new(T)
	}
}

// put gives one back; one too many is left to the garbage collector. Nil is fine.
func (f freeList[T]) put(x *T) {
	if x == nil {
		return
	}
	select {
	case f <- x:
	default:
	}
}
