package ranks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/elasticps/elasticps/collective"
)

// variable is the environment variable that makes a process one of the ranks.
const variable = "ELASTICPS_RANK"

const (
	startTimeout = time.Minute
	endTimeout   = 10 * time.Second // of the other processes, after the first has ended
)

// Config says which ranks there are.
type Config struct {
	// Size is their number. The same in all processes.
	Size int
	// Args are the arguments of the program.
	Args []string
	// Stderr gets what the other processes say.
	Stderr io.Writer
	// Deterministic is that of collective.Config.
	Deterministic bool
}

// place is what a process is told.
type place struct {
	Rank      int
	Addresses []string
	Secret    string
}

// First reports whether this process is the one that was started by somebody else.
func First() bool { return os.Getenv(variable) == "" }

// Join makes this process a rank; the first one starts the others before that. stop closes
// the group and, in the first process, waits for the others, which are killed if they do not
// end soon, or when ctx ends.
func Join(ctx context.Context, cfg Config) (g *collective.Group, stop func() error, err error) {
	var p place
	joining, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	life, kill := context.WithCancel(ctx)
	wait := func() error { kill(); return nil }
	if First() {
		p.Secret = rand.Text()
		if p.Addresses, err = FreeAddresses(ctx, cfg.Size); err == nil {
			wait, err = start(life, kill, cancel, cfg, p)
		}
	} else if err = json.Unmarshal([]byte(os.Getenv(variable)), &p); err != nil {
		err = fmt.Errorf("ranks: $%s: %w", variable, err)
	}
	if err != nil {
		kill()
		return nil, nil, err
	}
	g, err = collective.Join(joining, collective.Config{
		SocketsOnly: true, // as between hosts, so that there are bytes to count
		Rank:        p.Rank, Size: cfg.Size, Addresses: p.Addresses, Secret: []byte(p.Secret), Deterministic: cfg.Deterministic,
	})
	if err != nil {
		kill() // nobody can have a group
		return nil, nil, errors.Join(err, wait())
	}
	return g, func() error { return errors.Join(g.Close(), wait()) }, nil
}

// FreeAddresses finds n addresses of this host at which nobody listened a moment ago. Nobody
// else takes them in between: where the whole of 127.0.0.0/8 is this host, as on Linux, they are
// not the address that connections of other programs go out from.
func FreeAddresses(ctx context.Context, n int) (addresses []string, err error) {
	var lc net.ListenConfig
	for range n {
		l, err := lc.Listen(ctx, "tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+mathrand.IntN(254), mathrand.IntN(256), 1+mathrand.IntN(254)))
		if err != nil {
			l, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
		}
		if err != nil {
			return nil, fmt.Errorf("ranks: free port: %w", err)
		}
		defer l.Close() // all at once, so that they are different ones
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// lines lets several processes write to one writer.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// start starts the other processes, which live until kill ends life. stop waits for them. When
// one fails, failed is called, so that nobody waits for a rank that cannot come.
func start(life context.Context, kill, failed func(), cfg Config, p place) (stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("ranks: %w", err)
	}
	stderr := &lines{w: cfg.Stderr}
	var ends []chan error
	stop = func() error {
		late := time.AfterFunc(endTimeout, kill)
		defer late.Stop()
		defer kill()
		var errs []error
		for i, end := range ends {
			if err := <-end; err != nil {
				errs = append(errs, fmt.Errorf("ranks: rank %d: %w", i+1, err))
			}
		}
		return errors.Join(errs...)
	}
	for p.Rank = 1; p.Rank < cfg.Size; p.Rank++ {
		told, err := json.Marshal(p)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		c := exec.CommandContext(life, program, cfg.Args...)
		c.Env = append(os.Environ(), variable+"="+string(told))
		c.Stderr, c.WaitDelay = stderr, time.Second
		if err := c.Start(); err != nil {
			kill()
			return nil, errors.Join(fmt.Errorf("ranks: rank %d: %w", p.Rank, err), stop())
		}
		end := make(chan error, 1)
		ends = append(ends, end)
		go func() {
			err := c.Wait()
			if err != nil {
				failed()
			}
			end <- err
		}()
	}
	return stop, nil
}
