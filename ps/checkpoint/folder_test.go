package checkpoint_test

import (
	"testing"

	"github.com/elasticps/elasticps/ps/checkpoint"
	"github.com/elasticps/elasticps/ps/checkpoint/storagetest"
)

func TestFolder(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) checkpoint.Storage { return checkpoint.Folder(t.TempDir()) })
}
