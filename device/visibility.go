package device

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The visibility variables. Each hides devices from a process and numbers the rest
// anew, in the order in which the variable names them.
const (
	CUDAVisibleDevices   = "CUDA_VISIBLE_DEVICES"
	AscendVisibleDevices = "ASCEND_RT_VISIBLE_DEVICES"
	MUSAVisibleDevices   = "MUSA_VISIBLE_DEVICES"
	ROCRVisibleDevices   = "ROCR_VISIBLE_DEVICES"
	HIPVisibleDevices    = "HIP_VISIBLE_DEVICES"
)

// visibilityRule is how the runtime of a vendor reads its variable.
type visibilityRule struct {
	variable string
	// parse reads the entries up to the first that no device can match.
	parse func(value string) []VisibilityEntry
	// repeatHidesAll: a device named twice hides all; else it ends the list.
	repeatHidesAll bool
	// ascending: the list ends before an index that is not above the one before it.
	ascending bool
	// uuids: the variable may name devices by UUID.
	uuids bool
}

var visibilityRules = [...]visibilityRule{
	{variable: CUDAVisibleDevices, parse: parseCUDA, repeatHidesAll: true, uuids: true},
	{variable: AscendVisibleDevices, parse: parseAscend, ascending: true},
	{variable: MUSAVisibleDevices, parse: parseIndexes, repeatHidesAll: true},
	{variable: ROCRVisibleDevices, parse: parseROCR, uuids: true},
	{variable: HIPVisibleDevices, parse: parseIndexes},
}

// VisibilityEntry names one device.
type VisibilityEntry struct {
	Index int    // position among the devices; without meaning if UUID is not empty
	UUID  string // UUID, or the beginning of one
}

// Visibility is the value of a visibility variable as the vendor's runtime reads it:
// the entries up to the first that cannot name a device.
type Visibility struct {
	Variable string
	Entries  []VisibilityEntry
}

// ParseVisibility reads the value of a variable; it fails only for a variable that is not
// one of those above. Faults in the value have the effect that they have in the vendor's
// runtime:
//
//   - CUDA_VISIBLE_DEVICES: indexes, read as C's strtoul does ("1gpu" is 1), or, when the
//     first entry begins with GPU- or MIG-, beginnings of UUIDs of that kind. An entry that
//     names no device, or more than one, hides itself and everything after it; an entry
//     that stands twice hides everything. The empty value hides everything.
//   - ASCEND_RT_VISIBLE_DEVICES: logical indexes in ascending order. Reading stops at the
//     first character that is neither digit nor comma, even a space ("1, 2" is 1), at an
//     invalid index, and at one that is not above the one before it.
//   - MUSA_VISIBLE_DEVICES: indexes, as for CUDA.
//   - ROCR_VISIBLE_DEVICES: indexes and UUIDs, mixed; the first that names no device, or one
//     that stands twice, ends the list.
//   - HIP_VISIBLE_DEVICES, and CUDA_VISIBLE_DEVICES for AMD: indexes into what
//     ROCR_VISIBLE_DEVICES leaves; see Visible.
//
// Sources: CUDA C Programming Guide, appendix Environment Variables, and the reading of
// the same variable by PyTorch; CANN Environment Variable Reference; ROCm documentation,
// GPU isolation. What they leave open is read in the way that shows fewer devices.
func ParseVisibility(variable, value string) (Visibility, error) {
	rule, err := visibilityRuleOf(variable)
	if err != nil {
		return Visibility{}, err
	}
	return rule.read(value), nil
}

func visibilityRuleOf(variable string) (visibilityRule, error) {
	for _, r := range visibilityRules {
		if r.variable == variable {
			return r, nil
		}
	}
	return visibilityRule{}, fmt.Errorf("device: %q is not a visibility variable that is known", variable)
}

func (r visibilityRule) read(value string) Visibility {
	entries := r.parse(value)
	if end, ok := firstRepeat(entries); ok {
		entries = entries[:end]
		if r.repeatHidesAll {
			entries = nil
		}
	}
	if r.ascending {
		for i := 1; i < len(entries); i++ {
			if entries[i].Index <= entries[i-1].Index {
				entries = entries[:i]
			}
		}
	}
	return Visibility{Variable: r.variable, Entries: entries}
}

func firstRepeat[T comparable](list []T) (int, bool) {
	for i, e := range list {
		if slices.Contains(list[:i], e) {
			return i, true
		}
	}
	return 0, false
}

// Apply returns the devices that the variable leaves, in its order. The devices must be
// all of one vendor, in the order that the variable counts by, without those that are
// Gone.
func (v Visibility) Apply(all []Device) []Device {
	rule, err := visibilityRuleOf(v.Variable)
	if err != nil {
		return nil
	}
	var at []int
	for _, e := range v.Entries {
		i, ok := e.find(all)
		if !ok {
			break
		}
		at = append(at, i)
	}
	if end, ok := firstRepeat(at); ok {
		at = at[:end]
		if rule.repeatHidesAll {
			at = nil
		}
	}
	visible := make([]Device, 0, len(at))
	for _, i := range at {
		visible = append(visible, all[i])
	}
	return visible
}

// find returns the position of the device that the entry names, if it is exactly one.
func (e VisibilityEntry) find(all []Device) (int, bool) {
	if e.UUID == "" {
		return e.Index, e.Index >= 0 && e.Index < len(all)
	}
	at := -1
	for i, d := range all {
		if !strings.HasPrefix(d.UUID, e.UUID) {
			continue
		}
		if at >= 0 {
			return 0, false
		}
		at = i
	}
	return at, at >= 0
}

// FormatVisibility returns the value with which a variable leaves just these devices out
// of all. Devices are named by UUID where the variable takes them and all visible ones
// have one, else by position in all, in ascending order where the variable wants that. It
// fails when a device is not among all, or stands twice.
func FormatVisibility(variable string, all, visible []Device) (string, error) {
	rule, err := visibilityRuleOf(variable)
	if err != nil {
		return "", err
	}
	var at []int
	byUUID := rule.uuids
	for _, d := range visible {
		i := slices.IndexFunc(all, func(a Device) bool { return a.ID == d.ID })
		if i < 0 {
			return "", fmt.Errorf("device: %s: %s is not among the %d devices", variable, d.ID, len(all))
		}
		if slices.Contains(at, i) {
			return "", fmt.Errorf("device: %s: %s stands twice", variable, d.ID)
		}
		at = append(at, i)
		byUUID = byUUID && namesOne(variable, all[i].UUID, all)
	}
	if rule.ascending {
		slices.Sort(at)
	}
	entries := make([]string, len(at))
	for k, i := range at {
		entries[k] = strconv.Itoa(i)
		if byUUID {
			entries[k] = all[i].UUID
		}
	}
	if len(entries) == 0 {
		return "-1", nil // hides all, and is not taken for an unset variable
	}
	return strings.Join(entries, ","), nil
}

// namesOne reports whether the UUID, written into the variable, names exactly one device.
func namesOne(variable, uuid string, all []Device) bool {
	v, err := ParseVisibility(variable, uuid)
	return err == nil && len(v.Entries) == 1 && v.Entries[0].UUID == uuid && len(v.Apply(all)) == 1
}

// Visible returns the vendor's devices that a process with this environment sees, in
// the order in which it numbers them. The devices may be of several vendors and in any
// order; those that are Gone are left out. lookup is os.LookupEnv, or another of its
// form. AMD has two variables: ROCR_VISIBLE_DEVICES first, then HIP_VISIBLE_DEVICES, or,
// without that, CUDA_VISIBLE_DEVICES, counts what is left.
func Visible(vendor Vendor, devices []Device, lookup func(name string) (value string, set bool)) []Device {
	var left []Device
	for _, d := range devices {
		if d.Vendor == vendor && d.Health != Gone {
			left = append(left, d)
		}
	}
	slices.SortStableFunc(left, func(a, b Device) int { return cmp.Compare(a.Index, b.Index) })
	apply := func(rule, variable string) bool {
		value, set := lookup(variable)
		if set {
			if r, err := visibilityRuleOf(rule); err == nil {
				left = r.read(value).Apply(left)
			}
		}
		return set
	}
	switch vendor {
	case NVIDIA:
		apply(CUDAVisibleDevices, CUDAVisibleDevices)
	case Ascend:
		apply(AscendVisibleDevices, AscendVisibleDevices)
	case MooreThreads:
		apply(MUSAVisibleDevices, MUSAVisibleDevices)
	case AMD:
		apply(ROCRVisibleDevices, ROCRVisibleDevices)
		if !apply(HIPVisibleDevices, HIPVisibleDevices) {
			apply(HIPVisibleDevices, CUDAVisibleDevices)
		}
	}
	return left
}

// parseCUDA reads UUIDs of one kind, or indexes.
func parseCUDA(value string) []VisibilityEntry {
	for _, kind := range []string{"GPU-", "MIG-"} {
		if strings.HasPrefix(value, kind) {
			return parseUUIDs(value, kind)
		}
	}
	return parseIndexes(value)
}

func parseUUIDs(value, kind string) []VisibilityEntry {
	var entries []VisibilityEntry
	for e := range strings.SplitSeq(value, ",") {
		if !strings.HasPrefix(e, kind) {
			break
		}
		entries = append(entries, VisibilityEntry{UUID: e})
	}
	return entries
}

// parseIndexes reads as C's strtoul does: space, sign, digits, and whatever follows.
func parseIndexes(value string) []VisibilityEntry {
	var entries []VisibilityEntry
	for e := range strings.SplitSeq(value, ",") {
		index, ok := leadingNumber(strings.TrimPrefix(strings.TrimSpace(e), "+"))
		if !ok {
			break
		}
		entries = append(entries, VisibilityEntry{Index: index})
	}
	return entries
}

// parseROCR reads indexes and UUIDs, mixed.
func parseROCR(value string) []VisibilityEntry {
	var entries []VisibilityEntry
	for e := range strings.SplitSeq(value, ",") {
		e = strings.TrimSpace(e)
		if strings.HasPrefix(e, "GPU-") {
			entries = append(entries, VisibilityEntry{UUID: e})
			continue
		}
		index, ok := leadingNumber(e)
		if !ok {
			break
		}
		entries = append(entries, VisibilityEntry{Index: index})
	}
	return entries
}

// parseAscend reads digits and commas up to the first other character.
func parseAscend(value string) []VisibilityEntry {
	var entries []VisibilityEntry
	for {
		index, ok := leadingNumber(value)
		if !ok {
			return entries
		}
		entries = append(entries, VisibilityEntry{Index: index})
		rest, more := strings.CutPrefix(strings.TrimLeft(value, "0123456789"), ",")
		if !more {
			return entries
		}
		value = rest
	}
}

// leadingNumber returns the number that a text begins with, if there is one that fits.
func leadingNumber(text string) (int, bool) {
	digits := text[:len(text)-len(strings.TrimLeft(text, "0123456789"))]
	n, err := strconv.Atoi(digits)
	return n, err == nil
}
