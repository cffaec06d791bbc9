// Package kernel holds the float32 loops that parameter servers and workers
// spend their time in: vector sums, fused optimizer steps, initial values, conversions
// to and from 16 and 8 bits, and the checksum of what is sent.
//
// # Terms
//
// w is a slice of weights, g the gradient of the same elements, and v, m, h, z and n are the
// optimizer's slots: state of one float32 per weight (in [AdagradRow] one for all) that starts at
// zero or where the optimizer says. A fused step reads gradient and slots once and writes weights
// and slots in the same pass.
//
// # Smallest use
//
//	w, g := make([]float32, 4), []float32{1, 2, 3, 4}
//	kernel.SGD(w, g, 0.1, 0)
//
// # Formats of 16 bits
//
// [EncodeFP16], [EncodeBF16] and their opposites convert between float32 and IEEE 754
// binary16 or bfloat16, rounding to nearest even; the functions whose names end in Bytes
// read and write the wire, which is little endian. Decoding loses nothing, so that every
// code but those of signalling NaN comes back when it is encoded again.
//
// # Formats of 8 bits
//
// [EncodeE4M3], [EncodeE5M2] and their opposites are the formats of the Open Compute
// Project, rounded to nearest even, with a scale in the same pass. A [Saturation] says what
// becomes of numbers that are too large. On amd64 they have AVX2 versions, which decode by
// way of float16; elsewhere the twins run.
//
// # Checksums
//
// [CRC32C] is the sum of package hash/crc32 at two to three times its speed, and
// [CopyCRC32C] a copy that has the sum nearly for nothing.
//
// # Determinism
//
// Every element-wise kernel computes an element from that element alone, in
// float32, with each product rounded before it is added (no fused multiply-add,
// on any architecture). Applying a kernel to a slice or to any pieces of it gives
// the same bits, which is what lets a layer be split over servers, sent in chunks
// and moved without changing the result of training. The reductions [Dot] and
// [MaxAbs] add in a fixed order that depends on the length only; [Dot] of pieces
// may differ from [Dot] of the whole in the last bits, and so may those of [AdagradRow].
// The values of [Uniform], [Normal] and [TruncatedNormal] are pure functions of seed, stream
// and absolute element index, with the same bits on every machine.
//
// # Versions
//
// The exported functions call twins whose names end in Generic. The twins are the
// definition of the result. On amd64 with AVX2 (and F16C for float16) and on arm64 the
// assembly versions, whose names end in Wide, take the elements first, as many as are a
// multiple of eight, and leave the rest to the twins. They return the twins' bits for all
// numbers, denormals, zeros and infinities, reductions included: they use no fused
// multiply-add, square root and division round correctly by IEEE 754, and [Dot] keeps the
// 32 sums of its twin. One thing is left open, as it is by Go: where the result of
// arithmetic is NaN, its payload and sign. Conversions leave nothing open.
//
// Versions whose names end in Widest need AVX-512. They exist where they were measured to
// gain a tenth or more on 256 KiB or on 64 MiB: [EncodeBF16], and the sums [CRC32C] and
// [CopyCRC32C], which also need VPCLMULQDQ and have no other version but hash/crc32.
// Within a kernel prefetching gained nothing; [Prefetch] is for callers that know of many
// places at once.
//
// The twins run everywhere else, and on all machines with ELASTICPS_KERNEL=generic in
// the environment when the process starts, with the build tag noasm, and in builds with
// the race detector, which does not see what assembly reads and writes;
// ELASTICPS_KERNEL=avx2 leaves out what goes beyond AVX2. The assembly is generated: go
// generate ./internal/kernel writes it from the programs in the folder asm, a module of
// its own. Where qemu-aarch64 is installed the tests run the arm64 versions as well.
//
// # Concurrency, memory, errors
//
// Functions keep no state and no reference to their arguments, allocate nothing,
// and may run at the same time on slices that do not overlap. Arguments of one
// call may not overlap partly; dst and x may be the same slice. There are no
// errors: callers pass slices of equal length, and where they do not, the common
// prefix is processed and nothing beyond it is touched. NaN and infinities
// propagate as IEEE 754 says.
//
// # References
//
// SGD, momentum and Nesterov follow the convention of PyTorch's torch.optim.SGD (Sutskever et
// al., "On the importance of initialization and momentum in deep learning", ICML 2013, with the
// learning rate outside of the velocity). Adagrad: Duchi, Hazan and Singer, JMLR 12 (2011),
// section 1.3, diagonal form. Adam: Kingma and Ba, ICLR 2015, algorithm 1. AdamW: Loshchilov and
// Hutter, ICLR 2019, algorithm 2. AMSGrad: Reddi, Kale and Kumar, "On the convergence of Adam and
// beyond", ICLR 2018, algorithm 2. FTRL-proximal: McMahan and others, "Ad click prediction: a
// view from the trenches", KDD 2013, algorithm 1. Counter-based random values: Steele, Lea and
// Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (SplitMix64). binary16:
// IEEE 754-2019, section 3.6. E4M3, E5M2: OCP 8-bit Floating Point Specification, revision 1.0.
// CRC-32C: RFC 3720, section 12.1; folding: Gopal, Ozturk, Guilford and others, "Fast CRC
// computation for generic polynomials using PCLMULQDQ instruction", Intel, 2009.
package kernel
