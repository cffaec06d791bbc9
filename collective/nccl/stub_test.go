//go:build !(nccl || rccl || musa) || !cgo || !linux

package nccl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/collective/accelerator"
)

func TestWithoutTheTag(t *testing.T) {
	l, err := Open(accelerator.Config{})
	require.ErrorIs(t, err, accelerator.ErrNotBuilt)
	require.ErrorContains(t, err, "-tags nccl")
	require.Nil(t, l)
}
