// Package meter counts what tenants have of a cluster over time, in integers, so that the
// tenants' parts, what is held, and what is idle add up to all there is, exactly. It is pure.
//
// # Terms
//
// A resource is anything that is counted by name in whole units: thousandths of a core or a
// device, bytes. A tenant takes amounts of it and gives them back; what was taken counts, whether
// it is used or not. A Quantity is an amount times a time. A Statement is what each had in a
// period. Held is the tenant of room that is kept for somebody who does not run there yet.
//
// # Smallest use
//
//	m := meter.New(0)
//	err := m.SetCapacity("device/H100", 1000)
//	err = m.Take("blue", "device/H100", 250)
//	m.Advance(time.Hour)
//	s := m.Statement()                                     // blue: a quarter of a device for an hour
//	charges := s.Charge(map[string]int64{"device/H100": 2_000_000}) // what the hour cost
//
// A sched.Cluster with Config.Meter takes and gives back by itself, and elastic.Scheduler
// advances its meter.
//
// # Concurrency
//
// A Meter has one owner. A Statement is a value.
//
// # Errors
//
// SetCapacity and Take return ErrBalance, wrapped, with the amounts, for a change after which
// somebody would have less than nothing or all together more than there is. Nothing has
// changed then.
//
// # Units and limits
//
// Time counts in whole milliseconds since the meter's beginning, so that periods add up too.
// A Quantity has 128 bits: a hundred thousand hosts of a tebibyte each for a hundred million
// years. Money is in whole units of any currency, best in millionths. A meter remembers the
// tenants of the period, and after it those that still have something.
package meter
