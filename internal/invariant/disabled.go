//go:build !invariants

package invariant

// Enabled reports that this is a build without assertions (no tag "invariants").
const Enabled = false
