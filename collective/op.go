package collective

import (
	"fmt"

	"github.com/elasticps/elasticps/internal/kernel"
)

// Op says how elements are combined.
type Op uint8

// The operations. Integers wrap around. Min and Max of a NaN and anything are NaN.
// Average is the sum divided by the number of ranks, for integers truncated towards zero;
// the sum of the integers itself wraps around.
const (
	Sum Op = iota + 1
	Product
	Min
	Max
	Average
	opEnd
)

// String returns the name of the operation.
func (o Op) String() string {
	names := [...]string{0: "none", Sum: "sum", Product: "product", Min: "min", Max: "max", Average: "average"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("op %d", o)
}

// combine is dst = dst op src, element by element. Both have the same length.
func combine(t Type, o Op, dst, src []byte) {
	switch t {
	case Float32:
		combineFloat32(o, as[float32](dst), as[float32](src))
	case Float64:
		combineSlices(o, as[float64](dst), as[float64](src))
	case Int32:
		combineSlices(o, as[int32](dst), as[int32](src))
	case Int64:
		combineSlices(o, as[int64](dst), as[int64](src))
	case Uint8:
		combineSlices(o, dst, src)
	case Float16, BFloat16:
		combineHalf(t, o, dst, src)
	}
}

func combineFloat32(o Op, dst, src []float32) {
	if o == Sum || o == Average {
		kernel.Add(dst, src)
		return
	}
	combineSlices(o, dst, src)
}

func combineSlices[T float32 | float64 | int32 | int64 | uint8](o Op, dst, src []T) {
	src = src[:len(dst)]
	switch o {
	case Sum, Average:
		for i, x := range src {
			dst[i] += x
		}
	case Product:
		for i, x := range src {
			dst[i] *= x
		}
	case Min:
		for i, x := range src {
			dst[i] = min(dst[i], x)
		}
	case Max:
		for i, x := range src {
			dst[i] = max(dst[i], x)
		}
	}
}

// combineHalf rounds after each combination: for algorithms that do not fold.
func combineHalf(t Type, o Op, dst, src []byte) {
	var a, b [1024]float32
	for len(dst) > 0 {
		n := min(len(dst)/2, len(a))
		widen(t, a[:n], dst)
		widen(t, b[:n], src)
		combineFloat32(o, a[:n], b[:n])
		narrow(t, dst[:2*n], a[:n])
		dst, src = dst[2*n:], src[2*n:]
	}
}

// widen converts to float32, without loss.
func widen(t Type, dst []float32, src []byte) {
	if t == BFloat16 {
		kernel.DecodeBF16Bytes(dst, src)
	} else {
		kernel.DecodeFP16Bytes(dst, src)
	}
}

// narrow rounds from float32.
func narrow(t Type, dst []byte, src []float32) {
	if t == BFloat16 {
		kernel.EncodeBF16Bytes(dst, src)
	} else {
		kernel.EncodeFP16Bytes(dst, src)
	}
}

// divide ends an average over n ranks.
func divide(t Type, b []byte, n int) {
	switch t {
	case Float32:
		divideFloat32(as[float32](b), n)
	case Float64:
		divideSlice(as[float64](b), float64(n))
	case Int32:
		divideSlice(as[int32](b), int32(n))
	case Int64:
		divideSlice(as[int64](b), int64(n))
	case Uint8:
		for i, x := range b {
			b[i] = byte(int(x) / n) // n may be more than a byte holds
		}
	case Float16, BFloat16:
		var a [1024]float32
		for len(b) > 0 {
			k := min(len(b)/2, len(a))
			widen(t, a[:k], b)
			divideSlice(a[:k], float32(n))
			narrow(t, b[:2*k], a[:k])
			b = b[2*k:]
		}
	}
}

func divideFloat32(x []float32, n int) {
	if n&(n-1) == 0 {
		kernel.Scale(x, 1/float32(n)) // the same bits, several times as fast
		return
	}
	divideSlice(x, float32(n))
}

func divideSlice[T float32 | float64 | int32 | int64](x []T, n T) {
	for i := range x {
		x[i] /= n
	}
}
