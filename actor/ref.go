package actor

import (
	"fmt"
	"strings"
)

const (
	// maxName bounds the length of node, process, type and error-code names.
	maxName = 128
	// reservedPrefix starts the names of processes that the package runs itself.
	reservedPrefix = "~"
)

// Ref addresses a named process on a node. It is comparable and can be part of a
// message. It stays valid when the process is restarted under its name; nothing
// is guaranteed to run there. The zero Ref addresses nobody.
type Ref struct {
	Node string // name of the node
	Name string // name of the process on that node
}

// String returns name@node.
func (r Ref) String() string { return r.Name + "@" + r.Node }

// IsZero reports whether r addresses nobody.
func (r Ref) IsZero() bool { return r == Ref{} }

func (r Ref) validate() error {
	if err := validateName("node", r.Node, nodeNameBytes); err != nil {
		return err
	}
	return validateName("process", r.Name, processNameBytes)
}

const (
	nodeNameBytes    = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	spawnNameBytes   = nodeNameBytes + "ABCDEFGHIJKLMNOPQRSTUVWXYZ:/#+"
	processNameBytes = spawnNameBytes + reservedPrefix
)

func validateName(kind, name, allowed string) error {
	if len(name) == 0 || len(name) > maxName {
		return fmt.Errorf("actor: %s name %.200q has %d bytes, want 1 to %d", kind, name, len(name), maxName)
	}
	for i := 0; i < len(name); i++ {
		if strings.IndexByte(allowed, name[i]) < 0 {
			return fmt.Errorf("actor: %s name %q has the byte %q at %d, want one of %s", kind, name, name[i], i, allowed)
		}
	}
	return nil
}

// text makes a plain string a fmt.Stringer, for opError.
type text string

func (t text) String() string { return string(t) }
