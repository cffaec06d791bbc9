package collective

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Backend is what carries out a call.
type Backend uint8

// The backends. Zero stands for the choice by rules.
const (
	// CPU is the algorithms of this package, on memory of the host.
	CPU Backend = iota + 1
	// Streams is direct connections between two ranks, Config.Streams of them: Send and Recv.
	Streams
	NCCL // of NVIDIA
	RCCL // of AMD
	MCCL // of Moore Threads
	HCCL // of Ascend
	backendEnd
)

// backendNames are the words for the backends.
var backendNames = [...]string{0: "auto", CPU: "cpu", Streams: "streams", NCCL: "nccl", RCCL: "rccl", MCCL: "mccl", HCCL: "hccl"}

// String returns the word that ParseBackend reads.
func (b Backend) String() string {
	if int(b) < len(backendNames) {
		return backendNames[b]
	}
	return fmt.Sprintf("backend %d", b)
}

// vendor reports whether a backend is the library of a vendor.
func (b Backend) vendor() bool { return b >= NCCL && b < backendEnd }

// ParseBackend returns the backend of a name as in String; "" is "auto". For others the
// error is an *UnknownBackendError.
func ParseBackend(name string) (Backend, error) {
	if name == "" {
		return 0, nil
	}
	if i := slices.Index(backendNames[:], name); i >= 0 {
		return Backend(i), nil
	}
	return 0, &UnknownBackendError{Name: name, Known: slices.Clone(backendNames[:])}
}

// UnknownBackendError says that there is no backend of a name. It wraps ErrArgument.
type UnknownBackendError struct {
	Name  string
	Known []string
}

// Error lists the names that there are.
func (e *UnknownBackendError) Error() string {
	return fmt.Sprintf("%v: backend %.64q, must be one of %s", ErrArgument, e.Name, strings.Join(e.Known, ", "))
}

// Unwrap returns ErrArgument.
func (e *UnknownBackendError) Unwrap() error { return ErrArgument }

// Offer is what a rank brings to the choice of backends. The ranks of a group have each
// other's from the beginning, so that all choose the same. The zero value is a rank without
// accelerator, which leaves the choice to the rules.
type Offer struct {
	// Libraries are the vendors' backends that this rank has opened: accelerator.Vendor.Backend
	// of the vendor in a library's Capabilities.
	Libraries []Backend `json:",omitempty"`
	// Force is the backend of every call. The same on all ranks.
	Force Backend `json:",omitempty"`
	// HostBytesPerSecond is the bandwidth between host and device in one direction. Zero: 12e9.
	HostBytesPerSecond float64 `json:",omitempty"`
	// DeviceBytesPerSecond is what a device sends to others over its own links. Zero: 20e9.
	DeviceBytesPerSecond float64 `json:",omitempty"`
	// DeviceLatency is the time of an empty call on devices. Zero: 30 µs.
	DeviceLatency time.Duration `json:",omitempty"`
}

func (o *Offer) validate() error {
	var faults []error
	for _, b := range o.Libraries {
		if !b.vendor() {
			faults = append(faults, argument("Offer.Libraries has %v, must be those of vendors", b))
		}
	}
	if o.Force >= backendEnd {
		faults = append(faults, argument("Offer.Force is %v, must be one of %s", o.Force, strings.Join(backendNames[:], ", ")))
	}
	for i, v := range []float64{o.HostBytesPerSecond, o.DeviceBytesPerSecond} {
		if !(v >= 0) || math.IsInf(v, 1) {
			faults = append(faults, argument("Offer.%s is %v, must be finite and not negative", [...]string{"HostBytesPerSecond", "DeviceBytesPerSecond"}[i], v))
		}
	}
	if o.DeviceLatency < 0 {
		faults = append(faults, argument("Offer.DeviceLatency is %v, must not be negative", o.DeviceLatency))
	}
	return errors.Join(faults...)
}

// bargain is what the ranks of a group have in common.
type bargain struct {
	offer   Offer // what all have; the slowest figures
	lacking [backendEnd][]string
}

// agree puts the offers of the members of a group together. Every rank does so with the
// same roster. The error wraps ErrConflict: two of them force different backends.
func agree(r *roster) (bargain, error) {
	b := bargain{offer: Offer{HostBytesPerSecond: math.Inf(1), DeviceBytesPerSecond: math.Inf(1)}}
	for i := range r.Members {
		m := &r.Members[i]
		o := m.Offer
		if first := r.Members[0]; o.Force != first.Offer.Force {
			return b, fmt.Errorf("%w: backend %v is forced by member %q, %v by member %q", ErrConflict, first.Offer.Force, first.Name, o.Force, m.Name)
		}
		b.offer.Force = o.Force
		for v := NCCL; v < backendEnd; v++ {
			if !slices.Contains(o.Libraries, v) {
				b.lacking[v] = append(b.lacking[v], m.Name)
			}
		}
		b.offer.HostBytesPerSecond = min(b.offer.HostBytesPerSecond, positive(o.HostBytesPerSecond, 12e9))
		b.offer.DeviceBytesPerSecond = min(b.offer.DeviceBytesPerSecond, positive(o.DeviceBytesPerSecond, 20e9))
		b.offer.DeviceLatency = max(b.offer.DeviceLatency, time.Duration(positive(float64(o.DeviceLatency), 30e3)))
	}
	for v := NCCL; v < backendEnd; v++ {
		if len(b.lacking[v]) == 0 {
			b.offer.Libraries = append(b.offer.Libraries, v)
		}
	}
	return b, nil
}

func positive(x, otherwise float64) float64 {
	if x > 0 {
		return x
	}
	return otherwise
}

// BackendError says that a backend cannot carry out a call. It wraps ErrArgument: the group
// is as it was before.
type BackendError struct {
	Backend Backend
	Reason  string
}

// Error names the backend and the reason.
func (e *BackendError) Error() string {
	return fmt.Sprintf("%v: backend %v: %s", ErrArgument, e.Backend, e.Reason)
}

// Unwrap returns ErrArgument.
func (e *BackendError) Unwrap() error { return ErrArgument }

// Tensor is what the choice of a backend needs to know of a buffer.
type Tensor struct {
	// Type and Len are those of the whole buffer, of all parts where ranks have parts.
	Type Type
	Len  int
	// Device is the vendor's backend whose device holds it; zero: it is in memory of the host.
	Device Backend
}

// Choice is a backend, and why it was chosen.
type Choice struct {
	Backend Backend
	Reason  string
	// CPU and Device are the estimated times that were compared, zero where a rule decided.
	CPU, Device time.Duration
}

// blobBytes is the size from which on a message goes over several connections.
const blobBytes = 4 << 20

// choose returns the backend of a call: what is forced, else by rules, else by time. With an
// error nothing is chosen.
func (b *bargain) choose(c Collective, t Tensor, m *model, deterministic bool) (Choice, error) {
	bytes := float64(t.Len) * float64(t.Type.Bytes())
	ours := CPU
	if c == pointToPoint && bytes > blobBytes {
		ours = Streams
	}
	if b.offer.Force != 0 {
		return b.forced(c)
	}
	switch {
	case deterministic && c != pointToPoint:
		return Choice{Backend: ours, Reason: "Deterministic needs sums in the order of the ranks, which no vendor promises"}, nil
	case t.Device != 0 && len(b.lacking[t.Device]) == 0:
		return Choice{Backend: t.Device, Reason: fmt.Sprintf("the tensor is on a device and all ranks have %v", t.Device)}, nil
	case t.Device != 0:
		return Choice{Backend: ours, Reason: fmt.Sprintf("the tensor is on a device, but %s without %v: over the host", some(b.lacking[t.Device]), t.Device)}, nil
	case ours == Streams:
		return Choice{Backend: ours, Reason: fmt.Sprintf("a message of %.0f bytes, more than %d, in memory of the host", bytes, blobBytes)}, nil
	case c == pointToPoint:
		return Choice{Backend: ours, Reason: "a short message in memory of the host"}, nil
	case len(b.offer.Libraries) == 0:
		return Choice{Backend: ours, Reason: "the tensor is in memory of the host, and there is no vendor's library on all ranks"}, nil
	}
	return b.cheaper(c, t, m, bytes), nil
}

// forced is the backend that the ranks force, if they can.
func (b *bargain) forced(c Collective) (Choice, error) {
	f := b.offer.Force
	switch {
	case f.vendor() && len(b.lacking[f]) > 0:
		return Choice{}, &BackendError{Backend: f, Reason: "it is forced, but " + some(b.lacking[f]) + " without it"}
	case f == Streams && c != pointToPoint:
		return Choice{}, &BackendError{Backend: f, Reason: fmt.Sprintf("it is forced, and carries messages, no %v", c)}
	}
	return Choice{Backend: f, Reason: "forced"}, nil
}

// some says which members lack something.
func some(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d others are", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ") + " is"
}

// cheaper compares the time of a call on memory of the host with that of a copy to the
// device, the call there, and a copy back.
func (b *bargain) cheaper(c Collective, t Tensor, m *model, bytes float64) Choice {
	f := Fingerprint{Collective: c, Op: Sum, Type: t.Type, Count: t.Len}
	if c == ReduceScatter || c == AllGather || c == AllToAll {
		f.Count /= m.Ranks
	}
	cpu := m.estimate(c, m.choose(&f, false), float64(f.Count*t.Type.Bytes()))
	device := 2*bytes/b.offer.HostBytesPerSecond + b.offer.DeviceLatency.Seconds() + sent(c, bytes, m.Ranks)/b.offer.DeviceBytesPerSecond
	choice := Choice{Backend: CPU, CPU: duration(cpu), Device: duration(device)}
	word := "not less"
	if device < cpu {
		choice.Backend, word = b.offer.Libraries[0], "less"
	}
	choice.Reason = fmt.Sprintf("the tensor is in memory of the host: copies and a call of %v take %v, %s than %v on the host",
		b.offer.Libraries[0], choice.Device, word, choice.CPU)
	return choice
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * 1e9) }

// sent is how many bytes each rank sends at least.
func sent(c Collective, bytes float64, ranks int) float64 {
	share := bytes * float64(ranks-1) / float64(ranks)
	switch c {
	case AllReduce:
		return 2 * share
	case ReduceScatter, AllGather, AllToAll:
		return share
	}
	return bytes
}
