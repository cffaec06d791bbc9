package zkstore

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/elasticps/elasticps/shard/store"
	"github.com/go-zookeeper/zk"
)

// session is one connection and ZooKeeper's session on it: they end together.
// The client could go on with a session on a new connection, but then it sets
// its watches again, with a data race on the last transaction it has seen.
type session struct {
	server   string
	conn     *zk.Conn
	events   <-chan zk.Event
	up, down chan struct{} // closed when the session is there, and when it has ended

	mu      sync.Mutex
	begun   bool
	dialled bool
	socket  net.Conn
	cause   error
}

// minPatience is the least time that a server has to begin a session.
const minPatience = time.Second

// connect keeps the store connected, to one server after the other.
func (s *Store) connect() {
	pause := firstBackoff
	for i := rand.IntN(len(s.config.Servers)); s.life.Err() == nil; i++ {
		sess, err := s.dial(s.config.Servers[i%len(s.config.Servers)])
		if err == nil {
			pause = firstBackoff
			s.publish(sess, nil)
			select {
			case <-sess.down:
				err = sess.reason()
			case <-s.life.Done():
			}
			s.publish(nil, err)
			s.running.Go(sess.close)
		} else {
			s.publish(nil, err)
		}
		s.wait(s.life, pause)
		pause = min(2*pause, lastBackoff)
	}
}

func (s *Store) publish(sess *session, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess != nil {
		close(s.arrived)
	} else if s.present != nil {
		s.arrived = make(chan struct{})
	}
	s.present, s.cause = sess, cause
}

// session waits for a session. Without one in time the error wraps
// store.ErrUnavailable and says why.
func (s *Store) session(ctx context.Context) (*session, error) {
	for {
		s.mu.Lock()
		sess, arrived := s.present, s.arrived
		s.mu.Unlock()
		if sess != nil {
			return sess, nil
		}
		select {
		case <-arrived:
		case <-s.life.Done():
			return nil, store.ErrClosed
		case <-ctx.Done():
			err := ended(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.cause != nil {
				err = fmt.Errorf("%w: no session: %w", err, s.cause)
			}
			return nil, err
		}
	}
}

// dial begins a session with a server. The first request is made here: when it
// is answered, the client is done with what it does on its own.
func (s *Store) dial(server string) (*session, error) {
	sess := &session{server: server, up: make(chan struct{}), down: make(chan struct{})}
	conn, events, err := zk.Connect([]string{server}, s.config.SessionTimeout,
		zk.WithHostProvider(&once{server: server}),
		zk.WithDialer(func(_, address string, timeout time.Duration) (net.Conn, error) {
			return sess.dial(s.life, s.config.TLS, address, timeout)
		}),
		zk.WithEventCallback(sess.notice), zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(MaxResponseBytes), zk.WithMaxConnBufferSize(s.config.MaxRequestBytes+leaseKeyBytes))
	if err != nil {
		return nil, err
	}
	sess.conn, sess.events = conn, events
	first := make(chan error, 1)
	s.running.Go(func() {
		select {
		case <-sess.up:
			first <- sess.greet(s.config.User, s.config.Password)
		case <-sess.down:
		}
	})
	// As many servers as there are may be silent within the time of a session.
	patience := max(s.config.SessionTimeout/time.Duration(len(s.config.Servers)), minPatience)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err = <-first:
	case <-sess.down:
		err = sess.reason()
	case <-timer.C:
		err = fmt.Errorf("%s: no session after %v", server, patience)
	case <-s.life.Done():
		err = store.ErrClosed
	}
	if err != nil {
		sess.end(err)
		s.running.Go(sess.close)
		return nil, err
	}
	return sess, nil
}

// greet makes the first request.
func (sess *session) greet(user, password string) error {
	var err error
	if user != "" {
		err = sess.conn.AddAuth("digest", []byte(user+":"+password))
	} else {
		_, _, err = sess.conn.Exists("/")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", sess.server, err)
	}
	return nil
}

// dial makes the connection, the first time that the client asks for one.
func (sess *session) dial(life context.Context, config *tls.Config, address string, timeout time.Duration) (net.Conn, error) {
	sess.mu.Lock()
	again := sess.dialled
	sess.dialled = true
	sess.mu.Unlock()
	if again {
		return nil, errors.New("zkstore: a session has one connection")
	}
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	dial := (&net.Dialer{}).DialContext
	if config != nil {
		dial = (&tls.Dialer{Config: config}).DialContext
	}
	socket, err := dial(ctx, "tcp", address)
	if err != nil {
		sess.end(err)
		return nil, err
	}
	sess.mu.Lock()
	sess.socket = socket
	sess.mu.Unlock()
	return &frames{Conn: socket, first: true, refused: sess.end}, nil
}

// notice follows the state of the connection; it must not block.
func (sess *session) notice(ev zk.Event) {
	if ev.Type != zk.EventSession {
		return
	}
	switch ev.State {
	case zk.StateHasSession:
		sess.mu.Lock()
		if !sess.begun {
			sess.begun = true
			close(sess.up)
		}
		sess.mu.Unlock()
	case zk.StateDisconnected, zk.StateExpired, zk.StateAuthFailed:
		sess.end(fmt.Errorf("%s: %v", sess.server, ev.State))
	}
}

// end marks the session as ended; the first cause counts.
func (sess *session) end(cause error) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.cause == nil {
		sess.cause = cause
		close(sess.down)
	}
}

func (sess *session) reason() error {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return sess.cause
}

// close takes leave of the server, within a second, and waits until the client
// has let go of everything.
func (sess *session) close() {
	sess.conn.Close()
	sess.mu.Lock()
	socket := sess.socket
	sess.mu.Unlock()
	if socket != nil {
		socket.Close()
	}
	for range sess.events { // until the client is done
	}
}

// once is a zk.HostProvider of one server, which leaves the looking up to the
// dialer. After the first time the client pauses before it asks again.
type once struct {
	server string
	asked  bool
}

func (o *once) Init([]string) error { return nil }

func (o *once) Len() int { return 1 }

func (o *once) Next() (string, bool) {
	again := o.asked
	o.asked = true
	return o.server, again
}

func (o *once) Connected() {}

// silent drops what the client would print; errors reach the callers.
type silent struct{}

func (silent) Printf(string, ...any) {}

// frames is a connection that ends when the other side announces a frame of a
// size that no ZooKeeper server sends: the client would crash on a short one,
// and make room for any first one.
type frames struct {
	net.Conn
	first   bool
	head    []byte
	left    int64
	refused func(error)
}

// Sizes of a frame: a header at least, and the answer to the client's greeting
// at most.
const (
	minFrameBytes    = 16
	maxGreetingBytes = 1 << 10
)

func (f *frames) Read(b []byte) (int, error) {
	if f.left > 0 {
		n, err := f.Conn.Read(b[:min(int64(len(b)), f.left)])
		f.left -= int64(n)
		return n, err
	}
	n, err := f.Conn.Read(b[:min(len(b), 4-len(f.head))])
	f.head = append(f.head, b[:n]...)
	if len(f.head) < 4 {
		return n, err
	}
	most := int64(MaxResponseBytes)
	if f.first {
		most = maxGreetingBytes
	}
	f.left = int64(binary.BigEndian.Uint32(f.head))
	if f.left < minFrameBytes || f.left > most {
		err := &store.LimitError{Thing: "length of a frame from " + f.RemoteAddr().String(), Value: f.left, AtLeast: minFrameBytes, AtMost: most}
		f.refused(err)
		return 0, err
	}
	f.first, f.head = false, f.head[:0]
	return n, err
}
