//go:build nccl && cgo && linux

package acceltest

import "runtime"

// onThread runs a function on a thread of its own.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}
