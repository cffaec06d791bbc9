package stream

import (
	"os"
	"strings"
)

// HostID is the same for two processes on one machine, which can meet at its unix sockets.
func HostID() string {
	name, _ := os.Hostname() // empty is as good as any other name
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return name + "/" + strings.TrimSpace(string(boot))
}
