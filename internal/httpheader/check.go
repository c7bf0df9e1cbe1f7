package httpheader

import (
	"errors"
	"fmt"

	"adbuffer/internal/syntax"
)

// CheckPass returns nil, or an error if name is invalid in PolicyOptions.Pass.
func CheckPass(name string) error {
	if !syntax.IsToken([]byte(name)) {
		return errNotToken
	}
	id := identify([]byte(name))
	switch kind := requestKinds[id]; {
	case kind == never:
		return fmt.Errorf("%s never crosses the proxy", name)
	case kind > guarded:
		return fmt.Errorf("%s says whose request it is; see identity", name)
	}
	return nil
}

// CheckRemove returns nil, or an error if name is invalid in PolicyOptions.Remove.
func CheckRemove(name string) error {
	if !syntax.IsToken([]byte(name)) {
		return errNotToken
	}
	return nil
}

// CheckSet returns nil, or an error if the field is invalid in PolicyOptions.Set.
func CheckSet(field NameValue) error {
	if !syntax.IsToken([]byte(field.Name)) {
		return errNotToken
	}
	id := identify([]byte(field.Name))
	switch {
	case id == nameHost:
		return errors.New("Host is set by the SSP's key host")
	case requestKinds[id] == never:
		return fmt.Errorf("%s never crosses the proxy", field.Name)
	}
	if !syntax.IsValue([]byte(field.Value)) {
		return errors.New("the value has a control byte")
	}
	return nil
}

var errNotToken = errors.New("not a field name: letters, digits and !#$%&'*+-.^_`|~ only")
