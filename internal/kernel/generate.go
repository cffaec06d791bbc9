package kernel

// The generators are a module of their own, so that this one does not need what they
// import.

//go:generate go run -C asm ./kernels -pkg kernel -out ../kernel_amd64.s -stubs ../kernel_amd64.go
//go:generate go run -C asm ./crc -pkg kernel -out ../crc_amd64.s -stubs ../crc_amd64.go
//go:generate go run -C asm ./neon -out ../kernel_arm64.s -stubs ../kernel_arm64.go
//go:generate go run -C asm ./cpuid -pkg cpu -out ../cpu/cpuid_amd64.s -stubs ../cpu/cpuid_amd64.go
