//go:build !unix

package elastic

import "os/exec"

// ownGroup has nothing to do here.
func ownGroup(*exec.Cmd) {}

// terminate ends the child: there is no signal that asks it to.
func terminate(cmd *exec.Cmd) { kill(cmd) }

// kill ends the child.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
