package kernel

// Finite reports whether no element is a NaN or an infinity.
func Finite(x []float32) bool {
	for len(x) >= 8 {
		v := (*[8]float32)(x)
		// x-x is 0 for a finite x and NaN for others, which a sum keeps.
		if s := ((v[0] - v[0]) + (v[1] - v[1])) + ((v[2] - v[2]) + (v[3] - v[3])) +
			((v[4] - v[4]) + (v[5] - v[5])) + ((v[6] - v[6]) + (v[7] - v[7])); s != 0 {
			return false
		}
		x = x[8:]
	}
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}
