package kernel

import "math"

// golden is 2^64 divided by the golden ratio, the increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// Stream returns the random stream of the layer with that name, to be given to
// [Uniform] and [Normal]: the 64-bit FNV-1a hash of the name. Layers of different
// names get independent values from one seed.
func Stream(layer string) uint64 {
	const offset, prime = 0xcbf29ce484222325, 0x100000001b3
	hash := uint64(offset)
	for i := range len(layer) {
		hash = (hash ^ uint64(layer[i])) * prime
	}
	return hash
}

// RowStream returns the random stream of one row of a table whose own is stream, so that
// the values of a row depend on its id and not on the others.
func RowStream(stream uint64, id int64) uint64 {
	return mix(stream ^ mix(uint64(id)+golden))
}

// Uniform fills dst with values drawn uniformly from [-scale, scale). The value of
// an element is a function of seed, stream and first+i, its absolute index in the
// layer, so pieces filled separately equal the whole, to the bit, on every machine.
func Uniform(dst []float32, seed, stream uint64, first int64, scale float32) {
	key := streamKey(seed, stream)
	for i := range dst {
		bits := Draw(key, uint64(first)+uint64(i))
		unit := float32(bits>>40)*(1.0/(1<<23)) - 1 // exact: 24 bits, [-1, 1)
		dst[i] = scale * unit
	}
}

// Normal fills dst with values of mean zero and standard deviation std, none
// further out than 8.6 times std. Splits and machines behave as in [Uniform].
func Normal(dst []float32, seed, stream uint64, first int64, std float32) {
	key := streamKey(seed, stream)
	i := 0
	if first&1 != 0 && len(dst) > 0 {
		_, odd := boxMuller(key, uint64(first)>>1)
		dst[0] = std * odd
		i = 1
	}
	for ; i < len(dst); i += 2 {
		even, odd := boxMuller(key, (uint64(first)+uint64(i))>>1)
		dst[i] = std * even
		if i+1 < len(dst) {
			dst[i+1] = std * odd
		}
	}
}

// maxTries bounds the search of [TruncatedNormal]: one try in 22 fails, and each has two
// values, so that it is never reached.
const maxTries = 64

// TruncatedNormal fills dst with values of a normal distribution of mean zero and standard
// deviation std from which all beyond twice std have been taken: a value that is too far out
// is drawn again. Their own standard deviation is 0.88 times std. Splits behave as in
// [Uniform].
func TruncatedNormal(dst []float32, seed, stream uint64, first int64, std float32) {
	key := streamKey(seed, stream)
	for i := range dst {
		dst[i] = std * truncated(key, uint64(first)+uint64(i))
	}
}

func truncated(key, index uint64) float32 {
	for range maxTries {
		even, odd := boxMuller(key, index)
		if even >= -2 && even <= 2 {
			return even
		}
		if odd >= -2 && odd <= 2 {
			return odd
		}
		key = mix(key)
	}
	return 0
}

// boxMuller returns the two independent standard normal values of one pair of
// elements (Box and Muller, Annals of Mathematical Statistics 29, 1958).
func boxMuller(key, pair uint64) (even, odd float32) {
	const unit = 1.0 / (1 << 53)
	u := float64(Draw(key, 2*pair)>>11+1) * unit // (0, 1], its logarithm is finite
	sin, cos := sineCosine(float64(Draw(key, 2*pair+1)>>11) * unit)
	radius := math.Sqrt(-2 * logarithm(u))
	return float32(radius * cos), float32(radius * sin)
}

func streamKey(seed, stream uint64) uint64 {
	return mix(seed + mix(stream+golden))
}

// Draw is output number index of the SplitMix64 generator with state key
// (Steele, Lea and Flood, OOPSLA 2014).
func Draw(key, index uint64) uint64 {
	return mix(key + (index+1)*golden)
}

// mix is the finalizer of SplitMix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
