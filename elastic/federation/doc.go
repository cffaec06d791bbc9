// Package federation gives jobs to clusters, each job to one at a time: whoever is cut off stops
// before another begins. It is pure; messages are values, which elastic.Home and elastic.Site carry.
//
// # Terms
//
// A Site is one cluster with a scheduler of its own. The Home knows all jobs and which site has
// which. A Copy is a job on a site, with the epoch at which it was given there. Sites ask, Home
// answers: a Report says what a site runs, an Order what it may run. A lease is how long it may
// without another order.
//
// # Why there is one copy
//
// A site counts a lease from the moment at which it sent the report that was answered, Home from
// the later one at which it answered, and it adds what the two clocks may drift apart. A
// site stops what has not been renewed Grace before the lease ends; only when it has ended does Home
// give the job to another site. An order counts only if it answers the latest report, and Home
// takes reports in the order in which they were sent: so when a report says that something does not
// run, no order on its way can start it. No two clocks are compared.
//
// # Smallest use
//
//	home, err := federation.NewHome(federation.Config{}, term, now, nil)
//	record, err := home.Submit(federation.Job{Gang: gang})   // save the record
//
//	order, records, ok := home.Answer(now, report)           // if ok, save the records, then send the order
//
//	site, err := federation.NewSite(federation.Config{}, "east", incarnation)
//	report := site.Report(now, free)     // each Config.Interval; send it
//	actions := site.Obey(now, order)     // when the answer comes
//	actions = site.Expire(now)           // by site.Deadline()
//	site.Refused(copy); site.Ended(copy) // what became of a start,
//	site.Stopped(copy)                   // and of a stop
//
// # Where a job goes
//
// To the first of the sites in Job.Prefer, then to the one with most free devices, by what
// each said last. A site that refuses a job, or evicts it, comes after all others: a job that
// lost its place goes back to all sites, not to the one that evicted it. A job that all have
// refused rests for Config.Retry.
//
// # Concurrency, ordering
//
// Home and Site have one owner each. The time is that of each one's own monotonic clock. Messages
// may be lost, late, repeated and out of order; an answer takes less than Config.Interval, or it
// does not count. There is one Home at a time: whoever runs it holds a lease of the coordination
// store, whose revision is its term, and begins with the records that its predecessor saved. A site
// that starts again has a larger incarnation, and nothing of its predecessor runs any more.
//
// # Errors and limits
//
// Submit and Cancel wrap ErrUnknown or ErrExists, or say what is wrong with the job. A site has at
// most MaxCopies jobs, an order starts at most MaxStarts. A job whose site dies runs again from its
// beginning, or its checkpoint: at most once at a time, at least once in all.
//
// # References
//
// Gray, Cheriton: Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
// Consistency, SOSP 1989.
package federation
