package acceltest

import (
	"encoding/binary"
	"math"

	"github.com/elasticps/elasticps/collective/accelerator"
	"github.com/elasticps/elasticps/internal/kernel"
)

// Encode writes values as elements of a type.
func Encode(t accelerator.Type, values []float64) []byte {
	b := make([]byte, 0, len(values)*t.Bytes())
	for _, v := range values {
		switch t {
		case accelerator.Float32:
			b = binary.NativeEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case accelerator.Float64:
			b = binary.NativeEndian.AppendUint64(b, math.Float64bits(v))
		case accelerator.Float16:
			b = append(b, 0, 0)
			kernel.EncodeFP16Bytes(b[len(b)-2:], []float32{float32(v)})
		case accelerator.BFloat16:
			b = append(b, 0, 0)
			kernel.EncodeBF16Bytes(b[len(b)-2:], []float32{float32(v)})
		case accelerator.Int32:
			b = binary.NativeEndian.AppendUint32(b, uint32(int32(v)))
		case accelerator.Uint32:
			b = binary.NativeEndian.AppendUint32(b, uint32(v))
		case accelerator.Int64:
			b = binary.NativeEndian.AppendUint64(b, uint64(int64(v)))
		case accelerator.Uint64:
			b = binary.NativeEndian.AppendUint64(b, uint64(v))
		case accelerator.Int8:
			b = append(b, byte(int8(v)))
		case accelerator.Uint8:
			b = append(b, byte(v))
		default:
			b = append(b, encodeFloat8(t, v))
		}
	}
	return b
}

// Decode reads them.
func Decode(t accelerator.Type, b []byte) []float64 {
	values := make([]float64, 0, len(b)/t.Bytes())
	one := make([]float32, 1)
	for ; len(b) > 0; b = b[t.Bytes():] {
		v := 0.0
		switch t {
		case accelerator.Float32:
			v = float64(math.Float32frombits(binary.NativeEndian.Uint32(b)))
		case accelerator.Float64:
			v = math.Float64frombits(binary.NativeEndian.Uint64(b))
		case accelerator.Float16:
			kernel.DecodeFP16Bytes(one, b[:2])
			v = float64(one[0])
		case accelerator.BFloat16:
			kernel.DecodeBF16Bytes(one, b[:2])
			v = float64(one[0])
		case accelerator.Int32:
			v = float64(int32(binary.NativeEndian.Uint32(b)))
		case accelerator.Uint32:
			v = float64(binary.NativeEndian.Uint32(b))
		case accelerator.Int64:
			v = float64(int64(binary.NativeEndian.Uint64(b)))
		case accelerator.Uint64:
			v = float64(binary.NativeEndian.Uint64(b))
		case accelerator.Int8:
			v = float64(int8(b[0]))
		case accelerator.Uint8:
			v = float64(b[0])
		default:
			v = decodeFloat8(t, b[0])
		}
		values = append(values, v)
	}
	return values
}

// decodeFloat8 reads a number of one byte. E4M3 has no infinity.
func decodeFloat8(t accelerator.Type, x byte) float64 {
	mantissaBits, bias := 3, 7
	if t == accelerator.Float8E5M2 {
		mantissaBits, bias = 2, 15
	}
	exponent, mantissa := int(x&0x7f)>>mantissaBits, int(x)&(1<<mantissaBits-1)
	v := math.Ldexp(float64(mantissa+1<<mantissaBits), exponent-bias-mantissaBits)
	switch {
	case exponent == 0:
		v = math.Ldexp(float64(mantissa), 1-bias-mantissaBits)
	case t == accelerator.Float8E5M2 && exponent == 31 && mantissa == 0:
		v = math.Inf(1)
	case x&0x7f == 0x7f || t == accelerator.Float8E5M2 && exponent == 31:
		v = math.NaN()
	}
	if x&0x80 != 0 {
		return -v
	}
	return v
}

// encodeFloat8 finds the nearest number, of two equally near ones that with an even code.
func encodeFloat8(t accelerator.Type, v float64) byte {
	best, distance := byte(0), math.Inf(1)
	for x := range 256 {
		d := math.Abs(decodeFloat8(t, byte(x)) - v)
		if d < distance || d == distance && x&1 == 0 && best&1 == 1 {
			best, distance = byte(x), d
		}
	}
	return best
}

// near allows for another order of a sum.
func near(t accelerator.Type, a, b float64) bool {
	epsilon := map[accelerator.Type]float64{
		accelerator.Float32: 1e-6, accelerator.Float64: 1e-14, accelerator.Float16: 2e-3, accelerator.BFloat16: 1.6e-2,
		accelerator.Float8E4M3: 0.25, accelerator.Float8E5M2: 0.5,
	}[t]
	return a == b || math.Abs(a-b) <= epsilon*max(math.Abs(a), math.Abs(b), 1)
}
