// Package pool gives out the memory and the computing time of a host's devices: whole
// devices, fractions of them, and more memory than there is, by a stated factor.
//
// # Terms
//
// Computing time is counted in thousandths of a device (milli), memory in bytes, both as
// integers, so that ten tenths are a whole. A Reservation has one share on each of its
// devices, which are always distinct. With an over-subscription factor above 1 the shares on
// a device may add up to more than its memory; what does not fit is spilled to the memory of
// the host. A Transfer says how many bytes of which share have to move for that: the pool
// only counts, its user moves them. A Table has the templates of a model that can only be cut
// in certain sizes (vNPU, MIG): of such a device a request takes the smallest that has room for
// it, and that is what is counted.
//
// # Spill order
//
// The shares on a device stay in its memory in this order: higher priority first, then the one
// that was reserved or touched last. The rest is spilled, the share at the border in part.
// When room becomes free, shares come back in the same order.
//
// # Smallest use
//
//	p, err := pool.New(pool.Config{Devices: devices, MemoryFactor: 1.5})
//	if err != nil {
//		return err
//	}
//	r, transfers, err := p.Reserve(pool.Request{Milli: 500, Bytes: 20 << 30, Priority: 5})
//	var refused *pool.RefusalError
//	if errors.As(err, &refused) {
//		log.Print(refused.Constraint)             // what was in the way
//	}
//	...
//	transfers, err = p.Release(r.ID)
//
// # Concurrency and invariants
//
// All methods may be called from any goroutine, and none blocks. After any order of calls, on
// each device 0 <= available <= total holds for computing time and memory, and what is not
// spilled fits into its memory. The same calls in the same order have the same result.
//
// # Errors and limits
//
// Reserve refuses with a *RefusalError that names the binding constraint, and for each device
// everything that spoke against it. A request that no pool could take is an error that names
// field and bound. A pool has at most 4,096 devices.
package pool
