//go:build !hccl || !cgo || !linux

package hccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/accelerator"
)

func TestWithoutTheTag(t *testing.T) {
	l, err := Open(accelerator.Config{})
	require.ErrorIs(t, err, accelerator.ErrNotBuilt)
	require.ErrorContains(t, err, "-tags hccl")
	require.Nil(t, l)
}
