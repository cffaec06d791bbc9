//go:build !nvml || !cgo || !linux

package nvml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/device"
)

func TestWithoutTheTag(t *testing.T) {
	p, err := Open(Config{})
	require.ErrorIs(t, err, device.ErrNotBuilt)
	require.ErrorContains(t, err, "-tags nvml")
	require.Nil(t, p)
}
