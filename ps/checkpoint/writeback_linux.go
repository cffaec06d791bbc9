package checkpoint

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback has the disk begin with bytes of a file that were written, and does not
// wait for it. Whether it could is for the fsync at the end to say.
func startWriteback(file *os.File, offset, bytes int64) {
	conn, err := file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		_ = unix.SyncFileRange(int(fd), offset, bytes, unix.SYNC_FILE_RANGE_WRITE)
	})
}
