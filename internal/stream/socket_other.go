//go:build !linux

package stream

import (
	"net"
	"time"
)

// socket is a kernel socket that can do more than a net.Conn; there is none here.
type socket struct{ held net.Conn }

func newSocket(net.Conn) *socket { return nil }

func (*socket) read(int, []byte, []byte) (int, error) { panic("stream: no socket") }

func (*socket) write([]byte, []byte) int { panic("stream: no socket") }

func (*socket) detach(net.Conn, time.Duration) error { panic("stream: no socket") }
