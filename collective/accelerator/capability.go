package accelerator

import (
	"fmt"

	"github.com/elasticps/elasticps/collective"
	"github.com/elasticps/elasticps/collective/internal/abi"
)

// Version is that of a vendor's library; of Ascend that of its runtime's interface.
type Version struct{ Major, Minor, Patch int }

// versionOf decodes the number by which NCCL states its version: up to 2.8 with another
// factor than since 2.9.
func versionOf(code int) Version {
	if code < 10000 {
		return Version{code / 1000, code / 100 % 10, code % 100}
	}
	return Version{code / 10000, code / 100 % 100, code % 100}
}

// String returns the usual form.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// AtLeast reports whether v is other or later.
func (v Version) AtLeast(other Version) bool {
	if v.Major != other.Major {
		return v.Major > other.Major
	}
	if v.Minor != other.Minor {
		return v.Minor > other.Minor
	}
	return v.Patch >= other.Patch
}

// Capabilities says what a library can do. Two libraries whose values are equal can do the
// same; ranks of a group need equal ones. The zero value can do nothing.
type Capabilities struct {
	Vendor  Vendor
	Version Version
	// Abort says that a call that is stuck can be ended without ending the process.
	Abort bool
	// Shrink says that a group can drop ranks without a new exchange of ids.
	Shrink bool
	// Fuse says that calls can be made as one.
	Fuse bool
	// AllToAll says that the library has an all-to-all of its own.
	AllToAll bool
	// reductions says by type which operations there are, a bit for each.
	reductions [typeEnd]uint8
	// premul says that an average of floats is a sum of scaled elements.
	premul bool
}

// since says which version of a library began to have something.
type since map[Vendor]Version

var (
	always      = Version{}
	hasBFloat16 = since{NVIDIA: {2, 10, 0}, AMD: always, MooreThreads: always}
	hasAverage  = since{NVIDIA: {2, 10, 0}, AMD: {2, 10, 0}, MooreThreads: {2, 10, 0}}
	hasFloat8   = since{NVIDIA: {2, 24, 0}, AMD: {2, 21, 5}, MooreThreads: {2, 28, 9}}
)

func (s since) in(v Vendor, version Version) bool {
	from, ok := s[v]
	return ok && version.AtLeast(from)
}

func bits(ops ...collective.Op) (mask uint8) {
	for _, o := range ops {
		mask |= 1 << o
	}
	return mask
}

var fourOps = bits(collective.Sum, collective.Product, collective.Min, collective.Max)

// capabilitiesOf is the mask of a library of a version that has some optional functions.
func capabilitiesOf(v Vendor, version Version, has abi.Optional) Capabilities {
	c := Capabilities{
		Vendor: v, Version: version,
		Abort: v != Ascend || has&abi.StreamAbort != 0, Shrink: has&abi.Shrink != 0,
		Fuse: has&abi.GroupCalls != 0, AllToAll: has&abi.AllToAll != 0,
	}
	if v == Ascend {
		for _, t := range []Type{Int8, Int32, Int64, Float16, Float32} {
			c.reductions[t] = fourOps
		}
		c.reductions[BFloat16] = fourOps &^ bits(collective.Product)
		return c
	}
	for _, t := range []Type{Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64} {
		c.reductions[t] = fourOps
	}
	if hasBFloat16.in(v, version) {
		c.reductions[BFloat16] = fourOps
	}
	if hasFloat8.in(v, version) {
		c.reductions[Float8E4M3], c.reductions[Float8E5M2] = fourOps, fourOps
	}
	c.average(hasAverage.in(v, version), has&abi.PremulSum != 0)
	return c
}

// average adds that operation, where the library has it or can make it of floats.
func (c *Capabilities) average(native, premul bool) {
	c.premul = premul && !native
	for t, ops := range c.reductions {
		if ops == 0 {
			continue
		}
		if native || premul && floating(Type(t)) {
			c.reductions[t] |= bits(collective.Average)
		}
	}
}

// floating reports whether a scalar of the type can be written.
func floating(t Type) bool { return t == Float16 || t == BFloat16 || t == Float32 || t == Float64 }

// Supports returns nil if the library can carry out a call, else an *UnsupportedError. op
// counts for those that combine elements only; all others take every type, since they move
// bytes.
func (c Capabilities) Supports(o Operation, t Type, op collective.Op) error {
	no := &UnsupportedError{Operation: o, Type: t, Op: op, Vendor: c.Vendor, Version: c.Version}
	switch {
	case c.Vendor == 0 || t.Bytes() == 0:
		return no
	case o == AllToAll && !c.AllToAll && !c.Fuse:
		return no
	case !o.reduces():
		return nil
	case op == 0 || op > collective.Average || c.reductions[t]&bits(op) == 0:
		return no
	case c.Vendor == Ascend && o == ReduceScatter && t == Int64:
		return no
	}
	return nil
}
