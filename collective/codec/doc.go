// Package codec packs float32 into fewer bytes: 16, 8 or one bit for each, with scales of
// their own for short blocks, and keeps what rounding loses for the next time.
//
// # Terms
//
// A [Format] says how numbers are packed. A block is [Block] elements of a slice, counted
// from its beginning; the last one may be shorter. A scale is what the codes of a block, or
// of a group of 32 elements, are multiplied by. The residual of a tensor is what encoding
// it has lost so far, element by element; a [Feedback] adds it to the next value of the tensor
// and so loses nothing in the long run: the sum of what was decoded differs from the sum of
// what was encoded by the last residual alone.
//
// # Smallest use
//
//	packed := make([]byte, codec.E4M3.EncodedLen(len(grad)))
//	err := codec.E4M3.Encode(packed, grad)
//	err = codec.E4M3.Decode(grad, packed)
//
//	var left codec.Feedback
//	err := left.Encode(ctx, codec.E4M3, "layer 1", packed, grad)
//
// # Formats
//
//	          bytes of 128 elements   relative error (root of mean squares, normal numbers)
//	Float16   256                     0.0002, none above 65504
//	BFloat16  256                     0.0017
//	E4M3      132                     0.026
//	E5M2      132                     0.052
//	MXE4M3    132                     0.029
//	MXE5M2    132                     0.054
//	OneBit    20                      0.6
//
// E4M3 and E5M2 have one float32 for each block, so chosen that the largest absolute value
// becomes the largest number of the format; MXE4M3 and MXE5M2 one byte, a power of two, for
// each 32 elements, as the Microscaling formats have. OneBit has the signs of a block and the
// mean of its absolute values; it is for use with a Feedback.
//
// Elements lie in the order of the slice: of each block (group) first the scale, then the codes.
// Numbers are little endian, the first of eight signs is the lowest bit of its byte, and
// bits that are left over are zero.
//
// # NaN and infinities
//
// What is not finite comes out not finite at the same place, so that whoever looks for
// overflow finds it: NaN as NaN; infinities as themselves with Float16, BFloat16, E5M2 and
// MXE5M2, as NaN with E4M3 and MXE4M3, which have no infinity. With OneBit, which has no code
// for either, the whole block becomes NaN. The scale of a block follows from its finite
// elements. Float16 makes infinities of finite numbers from 65520 up; the others have room
// for all of float32, but that BFloat16 rounds what is above its largest number, 3.39e38, up
// to infinity. A residual is never anything but finite: where a value or what it was decoded
// to is not, zero is kept.
//
// # Feedback
//
// A residual belongs to a name, which has to stay the same while training goes on, to a
// number of elements, and to the rank that has it in a group ([Place]). When number or place
// change it begins at zero: a group of other ranks divides tensors otherwise. Steps whose
// gradient is thrown away (a loss scaler has found an infinity) leave the residual of that step
// behind, which is no more than one rounding.
//
// # Concurrency, memory
//
// Methods of Format keep nothing and allocate nothing, and may run at the same time on slices
// that do not overlap. A Feedback may be used by any goroutine; who holds a tensor
// ([Feedback.Hold]) keeps others from it.
//
// # Errors
//
// [ErrFormat], [ErrLength] and [ErrCorrupt]; the text says what was found and what the bound
// is. Decoding checks lengths, scales and unused bits, and takes any codes.
//
// # References
//
// OCP 8-bit Floating Point Specification, revision 1.0; OCP Microscaling Formats
// Specification, version 1.0. Error feedback: Seide and others, "1-bit stochastic gradient
// descent", Interspeech 2014; Karimireddy and others, "Error feedback fixes SignSGD", ICML 2019.
package codec
