//go:build unix

package elastic

import (
	"os/exec"
	"syscall"
)

// terminate asks the child to end.
func terminate(cmd *exec.Cmd) { _ = cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the child, and its own children with it.
func kill(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Process.Kill()
}
