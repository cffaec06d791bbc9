package accelerator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

const (
	// spins is how often the thread of a device looks again at once before it sleeps.
	spins = 64
	// nap and longNap bound how long it sleeps while something is under way.
	nap     = 20 * time.Microsecond
	longNap = time.Millisecond
	// closeTimeout is how long Close waits for what is under way, and then for the thread.
	closeTimeout = 5 * time.Second
)

// Device is a device in use. One thread of the operating system makes all calls to the
// vendor's libraries that are about it, in the order in which they were asked for.
type Device struct {
	lib   *Library
	index int

	work chan func()   // for the thread
	quit chan struct{} // closed by shut
	gone chan struct{} // closed when the thread has ended
	once sync.Once
	err  error // of closing

	mu    sync.Mutex
	hosts []*Host

	// Of the thread alone.
	queue     []*task // that are not enqueued yet
	busy      *task   // that the library is still enqueuing
	running   []*task // on streams; those that have ended for their callers too
	waiting   []*task // without a stream
	idle      []func()
	events    []abi.Handle // not in use
	groups    map[*Group]bool
	streams   map[*Stream]bool
	memories  map[*Memory]bool
	processed int
}

func newDevice(l *Library, index int) *Device {
	return &Device{
		lib: l, index: index, work: make(chan func(), 16), quit: make(chan struct{}), gone: make(chan struct{}),
		groups: map[*Group]bool{}, streams: map[*Stream]bool{}, memories: map[*Memory]bool{},
	}
}

// Index returns the number of the device.
func (d *Device) Index() int { return d.index }

// Library returns the library that the device was opened by.
func (d *Device) Library() *Library { return d.lib }

// start begins the thread and waits until the device is its current one.
func (d *Device) start(ctx context.Context) error {
	started := make(chan error, 1)
	go d.run(started)
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
		d.shut()
		return fmt.Errorf("%w: device %d does not start: %w", ErrHung, d.index, context.Cause(ctx))
	}
}

// run is the thread. It is never unlocked, so that it ends with the goroutine: its current
// device is nothing that another goroutine should find.
func (d *Device) run(started chan<- error) {
	runtime.LockOSThread()
	defer close(d.gone)
	defer d.lib.forget(d)
	if err := d.lib.check("set device", d.lib.abi.SetDevice(d.index)); err != nil {
		started <- err
		return
	}
	started <- nil
	sleep := time.NewTimer(longNap)
	defer sleep.Stop()
	quiet := 0
	for {
		if !d.active() {
			d.settleIdle()
			select {
			case f := <-d.work:
				f()
			case <-d.quit:
				d.leave()
				return
			}
			quiet = 0
			continue
		}
		if d.poll() {
			quiet = 0
		}
		quiet++
		if d.pause(sleep, quiet) {
			quiet = 0
		}
		select {
		case <-d.quit:
			d.leave()
			return
		default:
		}
	}
}

// active reports whether something is under way.
func (d *Device) active() bool {
	return len(d.queue)+len(d.running)+len(d.waiting) > 0 || d.busy != nil
}

// pause takes work, or waits, the longer the longer nothing has happened.
func (d *Device) pause(sleep *time.Timer, quiet int) bool {
	wait := time.Duration(0)
	if quiet > spins {
		wait = min(nap*time.Duration(quiet-spins), longNap)
	}
	if wait == 0 {
		select {
		case f := <-d.work:
			f()
			return true
		default:
			runtime.Gosched()
			return false
		}
	}
	sleep.Reset(wait)
	select {
	case f := <-d.work:
		f()
		return true
	case <-d.quit:
	case <-sleep.C:
	}
	return false
}

// poll looks at everything that is under way and reports whether something has happened.
func (d *Device) poll() bool {
	before := d.processed
	d.expire(time.Now())
	d.checkGroups()
	if t := d.busy; t != nil && d.enqueued(t) {
		d.busy = nil
		d.processed++
	}
	d.launch()
	d.running = slices.DeleteFunc(d.running, d.happened)
	d.waiting = slices.DeleteFunc(d.waiting, d.isReady)
	return d.processed != before
}

// expire ends tasks whose time is over, and with them their groups.
func (d *Device) expire(now time.Time) {
	for _, t := range d.all() {
		if t.ended {
			continue
		}
		if err := t.over(now); err != nil {
			d.cancel(t, err)
		}
	}
}

// all lists the tasks.
func (d *Device) all() []*task {
	list := slices.Concat(d.queue, d.running, d.waiting)
	if d.busy != nil {
		list = append(list, d.busy)
	}
	return list
}

// cancel ends a task because of an error; a call of a group ends the group.
func (d *Device) cancel(t *task, cause error) {
	d.processed++
	if t.group != nil {
		t.group.fail(cause)
	}
	t.end(cause)
}

// checkGroups asks for errors of groups that the calls themselves do not report.
func (d *Device) checkGroups() {
	for g := range d.groups {
		if !g.working() {
			continue
		}
		if state, err := g.state(); err != nil {
			g.fail(err)
		} else if d.lib.failed(state) {
			g.fail(d.lib.callError("asynchronous error", state, g.comm))
		}
	}
}

// launch enqueues what is not, one after the other: while the library is busy with one, no
// other is, of whatever group, since communicators of one device may not be launched
// concurrently.
func (d *Device) launch() {
	for d.busy == nil && len(d.queue) > 0 {
		t := d.queue[0]
		d.queue = slices.Delete(d.queue, 0, 1)
		d.processed++
		if t.ended {
			continue
		}
		if t.group != nil && t.group.failure() != nil {
			t.end(t.group.failure())
			continue
		}
		busy, err := t.begin()
		switch {
		case err != nil && t.group != nil && !fatal(err):
			t.end(err)
		case err != nil:
			d.cancel(t, err)
		case busy:
			d.busy = t
		default:
			d.follow(t)
		}
	}
}

// enqueued reports whether the library has enqueued the task that it was busy with.
func (d *Device) enqueued(t *task) bool {
	if t.group.failure() != nil {
		return true // it was ended, and the communicator with it
	}
	state, err := t.group.state() // checkGroups has looked for errors
	if err != nil || !d.lib.busy(state) {
		d.follow(t)
		return true
	}
	return false
}

// follow puts an event behind a task on its stream.
func (d *Device) follow(t *task) {
	var code int
	if n := len(d.events); n > 0 {
		t.event, d.events = d.events[n-1], d.events[:n-1]
	} else if t.event, code = d.lib.abi.EventCreate(); code != success {
		d.cancel(t, d.lib.runtimeError("create event", code))
		return
	}
	d.running = append(d.running, t)
	if code = d.lib.abi.EventRecord(t.event, t.stream.handle); code != success {
		d.cancel(t, d.lib.runtimeError("record event", code))
	}
}

// happened reports whether a task on a stream has ended, and takes its event back.
func (d *Device) happened(t *task) bool {
	if t.dropped {
		_ = d.lib.abi.EventDestroy(t.event) // it may never happen
		t.end(fmt.Errorf("accelerator: stream was emptied: %w", collective.ErrAborted))
		return true
	}
	yes, code := d.lib.abi.EventQuery(t.event)
	if code != success {
		if !t.ended {
			d.cancel(t, d.lib.runtimeError("query event", code))
		}
		_ = d.lib.abi.EventDestroy(t.event) // of a device that has failed
		return true
	}
	if !yes {
		return false
	}
	d.events = append(d.events, t.event)
	if !t.ended {
		d.processed++
		t.end(nil)
	}
	return true
}

func (d *Device) isReady(t *task) bool {
	if t.ended {
		return true
	}
	yes, err := t.ready()
	if err != nil {
		d.cancel(t, err)
		return true
	}
	if yes {
		d.processed++
		t.end(nil)
	}
	return yes
}

// settleIdle does what has to wait until nothing is under way.
func (d *Device) settleIdle() {
	for _, f := range d.idle {
		f()
	}
	d.idle = nil
}

// do has the thread do something and waits for it. When ctx ends before, the thread does
// not begin, or goes on, and what it makes is given back when the device is closed.
func (d *Device) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	work := func() {
		if ctx.Err() != nil {
			done <- fmt.Errorf("accelerator: device %d: %w", d.index, context.Cause(ctx))
			return
		}
		done <- f()
	}
	if err := d.give(ctx, work); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("accelerator: device %d: %w", d.index, context.Cause(ctx))
	case <-d.gone:
		return errClosed("device")
	}
}

// whenIdle has the thread do something when nothing is under way, and waits for it. When ctx
// ends before, it is done later.
func (d *Device) whenIdle(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	err := d.give(ctx, func() { d.idle = append(d.idle, func() { done <- f() }) })
	if errors.Is(err, collective.ErrClosed) {
		return nil // Close has done it
	}
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("accelerator: device %d: %w", d.index, context.Cause(ctx))
	case <-d.gone:
		return d.err
	}
}

// give hands work to the thread.
func (d *Device) give(ctx context.Context, work func()) error {
	select {
	case <-d.quit:
		return errClosed("device")
	default:
	}
	select {
	case d.work <- work:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("accelerator: device %d: %w", d.index, context.Cause(ctx))
	case <-d.gone:
		return errClosed("device")
	}
}

// submit hands a task to the thread.
func (d *Device) submit(t *task) (*Handle, error) {
	t.done = make(chan struct{})
	err := d.give(t.ctx, func() {
		if t.begin == nil {
			d.waiting = append(d.waiting, t)
			return
		}
		if t.group != nil { // a call
			t.group.mine[t] = true
		}
		d.queue = append(d.queue, t)
		d.launch()
	})
	if err != nil {
		return nil, err
	}
	return &Handle{t, d}, nil
}

func (d *Device) shut() {
	d.once.Do(func() { close(d.quit) })
}

// Close aborts the groups of the device, gives everything that belongs to it back, and ends
// its thread. Calls under way return. When the vendor's library does not come back within
// some seconds, its error wraps ErrHung, and the thread is left. Calling it again waits for
// the same.
func (d *Device) Close() error {
	d.shut()
	timer := time.NewTimer(closeTimeout + time.Second)
	defer timer.Stop()
	select {
	case <-d.gone:
		return d.err
	case <-timer.C:
		return fmt.Errorf("%w: device %d does not close", ErrHung, d.index)
	}
}

// leave is the end of the thread.
func (d *Device) leave() {
	for len(d.work) > 0 {
		(<-d.work)()
	}
	closed := errClosed("device")
	for g := range d.groups {
		g.fail(closed)
		g.discard()
	}
	for _, t := range d.all() {
		t.end(closed)
	}
	d.queue, d.busy, d.waiting = nil, nil, nil
	for end := time.Now().Add(closeTimeout); len(d.running) > 0 && time.Now().Before(end); {
		if d.running = slices.DeleteFunc(d.running, d.happened); len(d.running) > 0 {
			time.Sleep(nap)
		}
	}
	if len(d.running) > 0 {
		d.err = fmt.Errorf("%w: device %d: %d calls do not end", ErrHung, d.index, len(d.running))
		return // what they use must stay
	}
	for g := range d.groups {
		g.discard() // where it had to wait for a call
	}
	d.settleIdle()
	d.err = d.release()
}

// release gives back what the device has.
func (d *Device) release() error {
	var errs []error
	for s := range d.streams {
		errs = append(errs, s.destroy())
	}
	for m := range d.memories {
		errs = append(errs, m.free())
	}
	for _, h := range slices.Clone(d.hosts) {
		errs = append(errs, h.free())
	}
	for _, e := range d.events {
		errs = append(errs, d.lib.check("destroy event", d.lib.abi.EventDestroy(e)))
	}
	errs = append(errs, d.lib.check("release device", d.lib.abi.ReleaseDevice(d.index)))
	return errors.Join(errs...)
}
