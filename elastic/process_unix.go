//go:build unix && !linux

package elastic

import (
	"os/exec"
	"syscall"
)

// ownGroup gives the child a process group, so that a Ctrl-C at the terminal reaches
// this process alone, which then stops its servers in order.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
