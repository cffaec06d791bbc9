package kernel

import "hash/crc32"

// castagnoli is the table of the twin, which has the processor's CRC32 instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxFold bytes go to assembly at a time, for the reason given at maxWide: some 20 µs
// when they come from memory.
const maxFold = 256 << 10

// CRC32C returns the CRC-32C (polynomial of Castagnoli, as in RFC 3720) of the bytes
// that sum is the CRC-32C of, followed by p; sum is zero for no bytes. It equals
// Update(sum, crc32.MakeTable(crc32.Castagnoli), p) of package hash/crc32. The slice may
// have any length and alignment and is read only.
func CRC32C(sum uint32, p []byte) uint32 {
	for n := fold(len(p)); n > 0; n = fold(len(p)) {
		sum = crc32cWidest(sum, p[:n])
		p = p[n:]
	}
	return crc32cGeneric(sum, p)
}

// CopyCRC32C copies the common prefix of src and dst to dst, and returns what [CRC32C]
// returns for it. It reads the bytes once. The slices may not overlap.
func CopyCRC32C(sum uint32, dst, src []byte) uint32 {
	for n := fold(min(len(dst), len(src))); n > 0; n = fold(min(len(dst), len(src))) {
		sum = copyCRC32CWidest(sum, dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	n := copy(dst, src)
	return crc32cGeneric(sum, dst[:n])
}

func crc32cGeneric(sum uint32, p []byte) uint32 {
	return crc32.Update(sum, castagnoli, p)
}
