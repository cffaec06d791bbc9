package federation_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elasticps/elasticps/elastic/federation"
	"github.com/elasticps/elasticps/elastic/sched"
)

const (
	second = time.Second
	none   = sched.Milli(0)
)

func simple(id string, prefer ...string) federation.Job {
	return federation.Job{Gang: sched.Gang{ID: id, Tasks: []sched.Task{{ID: id, Request: sched.Request{Devices: 1}}}}, Prefer: prefer}
}

func newHome(t testing.TB, term uint64, records ...federation.Record) *federation.Home {
	t.Helper()
	h, err := federation.NewHome(config, term, 0, records)
	require.NoError(t, err)
	return h
}

func newSite(t testing.TB, name string, incarnation uint64) *federation.Site {
	t.Helper()
	s, err := federation.NewSite(config, name, incarnation)
	require.NoError(t, err)
	return s
}

func answer(t testing.TB, h *federation.Home, now time.Duration, r federation.Report) federation.Order {
	t.Helper()
	order, _, ok := h.Answer(now, r)
	require.True(t, ok)
	return order
}

// meet has a site and a Home hear of each other.
func meet(t testing.TB, h *federation.Home, now time.Duration, s *federation.Site, free sched.Milli) {
	t.Helper()
	require.Empty(t, s.Obey(now, answer(t, h, now, s.Report(now, free))))
}

// started returns the copy that is the only action.
func started(t testing.TB, actions []federation.Action) federation.Copy {
	t.Helper()
	require.Len(t, actions, 1)
	require.True(t, actions[0].Starts())
	return actions[0].Copy
}

// TestCase38BackToAllSites: a job that its site has evicted goes to another one, not to that
// site again, and to that one when all others have refused it.
func TestCase38BackToAllSites(t *testing.T) {
	h := newHome(t, 1)
	east, west, north := newSite(t, "east", 1), newSite(t, "west", 1), newSite(t, "north", 1)
	meet(t, h, 0, east, 2000)
	meet(t, h, 0, west, 1000)
	meet(t, h, 0, north, 3000)
	_, err := h.Submit(simple("j", "west"))
	require.NoError(t, err)
	now := second
	ask := func(s *federation.Site, free sched.Milli) []federation.Action {
		now += second / 10
		return s.Obey(now, answer(t, h, now, s.Report(now, free)))
	}
	require.Empty(t, ask(north, 3000), "west is preferred")
	first := started(t, ask(west, 1000))
	where, err := h.Where(now, "j")
	require.NoError(t, err)
	require.Equal(t, "west", where)
	west.Refused(first)
	require.Empty(t, ask(west, 8000), "whatever has become free there")
	require.Empty(t, ask(east, 2000))
	second := started(t, ask(north, 3000))
	require.Greater(t, second.Epoch, first.Epoch)
	north.Refused(second)
	require.Empty(t, ask(north, 3000))
	third := started(t, ask(east, 2000))
	east.Refused(third)
	require.Empty(t, ask(east, 2000))
	require.Empty(t, ask(west, 1000), "it rests")
	now += config.Retry
	require.Empty(t, ask(east, 9000), "the one that had it last comes last")
	last := started(t, ask(west, 1000))
	west.Ended(last)
	require.Empty(t, ask(west, 1000))
	_, err = h.Where(now, "j")
	require.ErrorIs(t, err, federation.ErrUnknown)
}

// An order that a later report has overtaken starts nothing, for Home may have heard in
// that report that the copy does not run.
func TestOrderThatWasOvertaken(t *testing.T) {
	h := newHome(t, 1)
	east, west := newSite(t, "east", 1), newSite(t, "west", 1)
	meet(t, h, 0, east, 1000)
	meet(t, h, 0, west, none)
	_, err := h.Submit(simple("j"))
	require.NoError(t, err)
	late := answer(t, h, second, east.Report(second, 1000))
	require.Len(t, late.Start, 1)
	_, err = h.Cancel("j")
	require.NoError(t, err)
	now := answer(t, h, 2*second, east.Report(2*second, none))
	require.Empty(t, now.Start)
	_, err = h.Submit(simple("j", "west"))
	require.NoError(t, err)
	started(t, west.Obey(3*second, answer(t, h, 3*second, west.Report(3*second, none))))
	require.Empty(t, east.Obey(4*second, late))
	require.Empty(t, east.Obey(4*second, now))
	require.Empty(t, east.Obey(4*second, now), "twice")
}

// A Home that begins does not believe a report that was sent before it began: another may have
// followed it.
func TestHomeThatBegins(t *testing.T) {
	old := newHome(t, 1)
	east := newSite(t, "east", 1)
	meet(t, old, 0, east, 1000)
	before := east.Report(second, 1000) // it is long on its way
	_, err := old.Submit(simple("j"))
	require.NoError(t, err)
	order, records, ok := old.Answer(second, east.Report(2*second, 1000))
	require.True(t, ok)
	require.Len(t, records, 1)
	c := started(t, east.Obey(2*second, order))
	cancelled, err := old.Cancel("j")
	require.NoError(t, err)
	require.False(t, cancelled.Over, "it runs")

	h := newHome(t, 2, cancelled)
	answer(t, h, 0, before)
	where, err := h.Where(0, "j")
	require.NoError(t, err)
	require.Equal(t, "east", where, "it does run")
	_, err = h.Submit(simple("j"))
	require.ErrorIs(t, err, federation.ErrExists)
	for _, a := range east.Obey(4*second, answer(t, h, second, east.Report(4*second, none))) {
		require.Equal(t, federation.Action{Copy: c}, a)
		east.Stopped(c)
	}
	_, records, ok = h.Answer(2*second, east.Report(5*second, none))
	require.True(t, ok)
	require.Len(t, records, 1)
	require.True(t, records[0].Over)
}

// A site tells a new Home what the old one has heard, for it may not have saved it.
func TestSiteTellsEveryHome(t *testing.T) {
	old := newHome(t, 1)
	east := newSite(t, "east", 1)
	meet(t, old, 0, east, 1000)
	_, err := old.Submit(simple("j"))
	require.NoError(t, err)
	order, records, ok := old.Answer(second, east.Report(2*second, 1000))
	require.True(t, ok)
	c := started(t, east.Obey(2*second, order))
	east.Ended(c)
	last := answer(t, old, 3*second, east.Report(3*second, none))

	h := newHome(t, 2, records...)
	require.Empty(t, east.Obey(4*second, answer(t, h, second, east.Report(4*second, none))))
	require.Empty(t, east.Obey(4*second, last), "of the Home of old")
	order, records, ok = h.Answer(2*second, east.Report(5*second, none))
	require.True(t, ok)
	require.Empty(t, order.Start, "it has ended")
	require.Len(t, records, 1)
	require.True(t, records[0].Over)
}

// A job is given to nobody else before the lease has ended by the slowest clock, and a new job of
// the same name is none that a site still has of the old one.
func TestLeaseEndsByEveryClock(t *testing.T) {
	h, east := newHome(t, 1), newSite(t, "east", 1)
	meet(t, h, 0, east, 1000)
	_, err := h.Submit(simple("j"))
	require.NoError(t, err)
	former := started(t, east.Obey(0, answer(t, h, second, east.Report(0, 1000))))
	end := second + config.Lease + config.Lease*time.Duration(config.Drift)/1000
	where, err := h.Where(end, "j")
	require.NoError(t, err)
	require.Equal(t, "east", where)
	where, err = h.Where(end+1, "j")
	require.NoError(t, err)
	require.Empty(t, where)
	r, err := h.Cancel("j")
	require.NoError(t, err)
	require.True(t, r.Over)
	_, err = h.Submit(simple("j"))
	require.NoError(t, err)
	actions := east.Obey(second, answer(t, h, end+2, east.Report(second, 1000)))
	require.Equal(t, []federation.Action{{Copy: former}}, actions, "it stops, and the new one has to wait for that")
	east.Stopped(former)
	next := started(t, east.Obey(2*second, answer(t, h, end+3, east.Report(2*second, 1000))))
	require.Greater(t, next.Epoch, former.Epoch)
}

func TestOldHomeIsNotObeyed(t *testing.T) {
	old, h := newHome(t, 1), newHome(t, 2)
	east := newSite(t, "east", 1)
	meet(t, h, 0, east, none)
	_, err := old.Submit(simple("j"))
	require.NoError(t, err)
	r := east.Report(second, none)
	r.Term = 1
	order := answer(t, old, 0, r)
	require.Len(t, order.Start, 1)
	require.Empty(t, east.Obey(second, order))
}

func TestLimitsAndFaults(t *testing.T) {
	bad := federation.Config{Lease: -1, Grace: -1, Drift: 501, Interval: -1, Retry: -1}
	_, err := federation.NewHome(bad, 0, 0, nil)
	for _, want := range []string{"Lease -1ns", "Grace -1ns", "Drift 501: want 0 to 500", "Interval -1ns", "Retry -1ns", "term 0"} {
		require.ErrorContains(t, err, want)
	}
	_, err = federation.NewSite(federation.Config{}, "", 1)
	require.ErrorContains(t, err, "name of a site")
	_, err = federation.NewHome(config, 1, 0, []federation.Record{{}})
	require.ErrorContains(t, err, "ID is empty")
	h := newHome(t, 1)
	_, err = h.Submit(federation.Job{})
	require.ErrorContains(t, err, "0 Tasks: want 1 to")
	_, err = h.Cancel("x")
	require.ErrorIs(t, err, federation.ErrUnknown)
	_, _, ok := h.Answer(0, federation.Report{Site: "east", Copies: make([]federation.Held, 2*federation.MaxCopies+1)})
	require.False(t, ok)
	for i := range federation.MaxSites {
		answer(t, h, 0, federation.Report{Site: fmt.Sprint(i)})
	}
	_, _, ok = h.Answer(0, federation.Report{Site: "one more"})
	require.False(t, ok)

	h, east := newHome(t, 1), newSite(t, "east", 1)
	meet(t, h, 0, east, none)
	for i := range federation.MaxCopies + 10 {
		r, err := h.Submit(simple(fmt.Sprint(i)))
		require.NoError(t, err)
		require.Empty(t, r.Site)
	}
	_, found := east.Deadline()
	require.False(t, found)
	now, starts := time.Duration(0), 0
	for range federation.MaxCopies/federation.MaxStarts + 2 {
		now += time.Millisecond
		starts += len(east.Obey(now, answer(t, h, now, east.Report(now, none))))
	}
	require.Equal(t, federation.MaxCopies, starts)
	deadline, found := east.Deadline()
	require.True(t, found)
	require.Equal(t, now+config.Lease-config.Grace, deadline)
	require.Empty(t, east.Expire(deadline-1))
	require.Len(t, east.Expire(deadline), federation.MaxCopies)
	require.Empty(t, east.Expire(deadline+1), "once")
}
