//go:build !nvml || !cgo || !linux

package nvml

import (
	"fmt"

	"github.com/elasticps/elasticps/device"
)

func open(string) (library, error) {
	return nil, fmt.Errorf("nvml: build with -tags nvml and cgo on Linux: %w", device.ErrNotBuilt)
}
