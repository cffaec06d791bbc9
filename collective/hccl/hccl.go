package hccl

import "github.com/elasticps/elasticps/collective/accelerator"

// Open loads the libraries of Ascend.
func Open(c accelerator.Config) (*accelerator.Library, error) {
	c.Vendors = []accelerator.Vendor{accelerator.Ascend}
	return accelerator.Open(c)
}
