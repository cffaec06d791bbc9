package meter

import (
	"math/big"
	"math/bits"
	"time"
)

// Quantity is an amount times a time, in units times milliseconds. The zero value is
// nothing; == compares.
type Quantity struct{ high, low uint64 }

// Over returns the quantity of an amount over a time, of which whole milliseconds count.
// Below zero, either is nothing.
func Over(amount int64, d time.Duration) Quantity {
	if amount < 0 || d < 0 {
		return Quantity{}
	}
	return product(uint64(amount), uint64(d.Milliseconds()))
}

func product(a, b uint64) Quantity {
	high, low := bits.Mul64(a, b)
	return Quantity{high, low}
}

// Plus returns the sum.
func (q Quantity) Plus(r Quantity) Quantity {
	low, carry := bits.Add64(q.low, r.low, 0)
	high, _ := bits.Add64(q.high, r.high, carry)
	return Quantity{high, low}
}

// Big returns the number of units times milliseconds.
func (q Quantity) Big() *big.Int {
	v := new(big.Int).SetUint64(q.high)
	return v.Or(v.Lsh(v, 64), new(big.Int).SetUint64(q.low))
}

// Hours returns the number of units times hours, rounded as float64 is: of thousandths of
// a device, a thousand is one hour of one device.
func (q Quantity) Hours() float64 {
	v, _ := new(big.Float).Quo(new(big.Float).SetInt(q.Big()), big.NewFloat(float64(time.Hour.Milliseconds()))).Float64()
	return v
}

// String returns units times milliseconds in decimal.
func (q Quantity) String() string { return q.Big().String() }
