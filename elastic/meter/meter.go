package meter

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrBalance is wrapped by errors for changes after which the amounts would not add up.
var ErrBalance = errors.New("meter: amounts do not add up")

// Held is the tenant of room that is kept for somebody who does not run there yet.
const Held = "(held)"

// account is an amount and what it has come to.
type account struct {
	amount int64
	since  int64 // milliseconds at which sum was brought up to date
	sum    Quantity
}

// change brings the sum up to date and adds to the amount.
func (a *account) change(now, delta int64) {
	a.sum = a.sum.Plus(product(uint64(a.amount), uint64(now-a.since)))
	a.since = now
	a.amount += delta
}

// resource is what there is of one, and who has how much of it.
type resource struct {
	all     account
	idle    account // its amount is what nobody has
	tenants map[string]*account
}

// Meter counts from its beginning, or from the last Close.
type Meter struct {
	begin, now int64 // milliseconds
	resources  map[string]*resource
}

// New returns a meter without resources that begins at a time, which is counted from any
// beginning of yours.
func New(now time.Duration) *Meter {
	ms := now.Milliseconds()
	return &Meter{begin: ms, now: ms, resources: make(map[string]*resource)}
}

// Advance lets time pass. Call it before each change, with the time of the change; an earlier
// time than the last one is that one.
func (m *Meter) Advance(now time.Duration) { m.now = max(m.now, now.Milliseconds()) }

// SetCapacity says how much there is of a resource from now on. The error wraps ErrBalance if
// more than that is taken.
func (m *Meter) SetCapacity(name string, amount int64) error {
	r := m.resources[name]
	switch {
	case r == nil && amount == 0:
		return nil
	case r == nil:
		r = &resource{all: account{since: m.now}, idle: account{since: m.now}, tenants: make(map[string]*account)}
	}
	taken := r.all.amount - r.idle.amount
	if amount < taken || amount < 0 {
		return fmt.Errorf("meter: %s: capacity %d, of which %d are taken: %w", name, amount, taken, ErrBalance)
	}
	m.resources[name] = r
	r.idle.change(m.now, amount-r.all.amount)
	r.all.change(m.now, amount-r.all.amount)
	return nil
}

// Take gives a tenant an amount of a resource from now on, or takes it back with a negative one.
// The error wraps ErrBalance if there is not as much, or the tenant has not as much.
func (m *Meter) Take(tenant, name string, delta int64) error {
	if delta == 0 {
		return nil
	}
	r := m.resources[name]
	if r == nil {
		return fmt.Errorf("meter: %q takes %d of %s, of which there is none: %w", tenant, delta, name, ErrBalance)
	}
	a := r.tenants[tenant]
	if a == nil {
		a = &account{since: m.now}
	}
	if delta > r.idle.amount || a.amount+delta < 0 {
		return fmt.Errorf("meter: %q has %d of %s and takes %d, %d are free: %w",
			tenant, a.amount, name, delta, r.idle.amount, ErrBalance)
	}
	r.tenants[tenant] = a
	a.change(m.now, delta)
	r.idle.change(m.now, -delta)
	return nil
}

// Usage is what became of one resource in a period. Idle and Tenants add up to Capacity.
type Usage struct {
	Capacity Quantity
	Idle     Quantity
	// Tenants have those that had any of it, Held among them.
	Tenants map[string]Quantity
}

// Statement is what each tenant had of each resource in a period.
type Statement struct {
	// Begin and End of the period, in the time of Advance.
	Begin, End time.Duration
	Resources  map[string]Usage
}

// Statement returns what has become of the resources since the period began, until now.
func (m *Meter) Statement() Statement {
	s := Statement{
		Begin: time.Duration(m.begin) * time.Millisecond, End: time.Duration(m.now) * time.Millisecond,
		Resources: make(map[string]Usage, len(m.resources)),
	}
	for name, r := range m.resources {
		r.all.change(m.now, 0)
		r.idle.change(m.now, 0)
		u := Usage{Capacity: r.all.sum, Idle: r.idle.sum, Tenants: make(map[string]Quantity, len(r.tenants))}
		for tenant, a := range r.tenants {
			a.change(m.now, 0)
			if a.sum != (Quantity{}) {
				u.Tenants[tenant] = a.sum
			}
		}
		s.Resources[name] = u
	}
	return s
}

// Close ends the period now and begins the next one. It returns the statement of the one that
// ends.
func (m *Meter) Close() Statement {
	s := m.Statement()
	m.begin = m.now
	for _, r := range m.resources {
		r.all.sum, r.idle.sum = Quantity{}, Quantity{}
		maps.DeleteFunc(r.tenants, func(_ string, a *account) bool { return a.amount == 0 })
		for _, a := range r.tenants {
			a.sum = Quantity{}
		}
	}
	maps.DeleteFunc(m.resources, func(_ string, r *resource) bool { return r.all.amount == 0 })
	return s
}

// names returns the tenants of a usage in order.
func (u Usage) names() []string { return slices.Sorted(maps.Keys(u.Tenants)) }
