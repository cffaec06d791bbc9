package nccl

import "github.com/elasticps/elasticps/collective/accelerator"

// Open loads the libraries of the first vendor of the family that is there with a device:
// NVIDIA, AMD, Moore Threads, or those of c.Vendors.
func Open(c accelerator.Config) (*accelerator.Library, error) {
	if len(c.Vendors) == 0 {
		c.Vendors = []accelerator.Vendor{accelerator.NVIDIA, accelerator.AMD, accelerator.MooreThreads}
	}
	return accelerator.Open(c)
}
