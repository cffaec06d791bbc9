package actor

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// maxTypes bounds the number of registered message types, and of error codes.
const maxTypes = 1024

// typeInfo is one registered message type.
type typeInfo struct {
	name    string
	elem    reflect.Type // never a pointer
	pointer bool         // receivers get *elem instead of elem
}

// typeTable is what is registered. It is replaced, never changed, so that the hot
// path reads it without a lock.
type typeTable struct {
	byName map[string]*typeInfo
	byType map[reflect.Type]*typeInfo // has elem and *elem
	errors []coded
}

func newTypeTable() *typeTable {
	t := &typeTable{
		byName: map[string]*typeInfo{},
		byType: map[reflect.Type]*typeInfo{},
		errors: builtinErrors(),
	}
	for name, v := range map[string]any{
		"bool": false, "int": 0, "int64": int64(0), "uint64": uint64(0), "float64": float64(0),
		"string": "", "bytes": []byte(nil), "ref": Ref{},
		"actor.stop": stopRequest{}, "actor.link": linkRequest{},
	} {
		t.add(&typeInfo{name: name, elem: reflect.TypeOf(v)})
	}
	return t
}

func (t *typeTable) add(info *typeInfo) {
	t.byName[info.name] = info
	t.byType[info.elem] = info
	t.byType[reflect.PointerTo(info.elem)] = info
}

// Register makes the type of prototype sendable between nodes under a name that is
// the same on all of them, such as "ps.join". Across nodes a pointer prototype (*T) is
// delivered as *T, a value (T) as T, whichever was sent; within a node what was sent is
// delivered, so send what you registered, or receive with As. The struct's exported fields
// travel in order, so all nodes must have the same fields; others get a typed error.
// Registering the same type under the same name again does nothing. It fails when
// the name or the type is taken, or when 1,024 types are registered. bool, int,
// int64, uint64, float64, string, []byte and Ref are registered already.
func (n *Node) Register(name string, prototype any) error {
	if err := validateName("type", name, processNameBytes); err != nil {
		return err
	}
	typ := reflect.TypeOf(prototype)
	if typ == nil {
		return fmt.Errorf("actor: register %q: nil has no type", name)
	}
	info := &typeInfo{name: name, elem: typ}
	if typ.Kind() == reflect.Pointer {
		info.elem, info.pointer = typ.Elem(), true
	}
	if err := encodable(info.elem); err != nil {
		return fmt.Errorf("actor: register %q: %w", name, err)
	}
	return n.changeTypes(func(t *typeTable) error {
		known := t.byName[name]
		if known != nil && *known == *info {
			return nil
		}
		if known != nil {
			return fmt.Errorf("actor: register %q: the name belongs to %v", name, known.elem)
		}
		if other := t.byType[typ]; other != nil {
			return fmt.Errorf("actor: register %q: the type %v is registered as %q", name, info.elem, other.name)
		}
		if len(t.byName) >= maxTypes {
			return fmt.Errorf("actor: register %q: %d types are registered, at most %d", name, len(t.byName), maxTypes)
		}
		t.add(info)
		return nil
	})
}

func encodable(t reflect.Type) error {
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Interface, reflect.Pointer:
		return fmt.Errorf("a %v cannot be sent", t)
	}
	return nil
}

// RegisterError makes errors.Is(err, sentinel) hold for the caller on another node
// when an actor fails a request, or ends, with an error that wraps sentinel. The
// code must be registered on both nodes. It fails when the code is taken.
func (n *Node) RegisterError(code string, sentinel error) error {
	if err := validateName("error code", code, processNameBytes); err != nil {
		return err
	}
	if sentinel == nil {
		return fmt.Errorf("actor: register error %q: nil is no error", code)
	}
	return n.changeTypes(func(t *typeTable) error {
		for _, c := range t.errors {
			if c.code == code && c.err == sentinel {
				return nil
			}
			if c.code == code {
				return fmt.Errorf("actor: register error %q: the code belongs to %q", code, c.err)
			}
		}
		if len(t.errors) >= maxTypes {
			return fmt.Errorf("actor: register error %q: %d codes are registered, at most %d", code, len(t.errors), maxTypes)
		}
		t.errors = append(t.errors, coded{code, sentinel})
		return nil
	})
}

func (n *Node) changeTypes(change func(*typeTable) error) error {
	n.typesMu.Lock()
	defer n.typesMu.Unlock()
	old := n.types.Load()
	next := &typeTable{
		byName: maps.Clone(old.byName),
		byType: maps.Clone(old.byType),
		errors: slices.Clone(old.errors),
	}
	if err := change(next); err != nil {
		return err
	}
	n.types.Store(next)
	return nil
}
