//go:build invariants

package invariant

// Enabled reports that this is a build with assertions (tag "invariants").
const Enabled = true
