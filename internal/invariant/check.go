package invariant

import "fmt"

// Check panics with the formatted text when cond is false and [Enabled] is true.
// Otherwise it does nothing. The text names the invariant and the values that break
// it; the panic's value is a string that starts with "invariant: ".
func Check(cond bool, format string, args ...any) {
	if Enabled && !cond {
		panic("invariant: " + fmt.Sprintf(format, args...))
	}
}
