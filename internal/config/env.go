package config

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// Env looks a variable up; os.LookupEnv is one. A nil Env has none.
type Env func(name string) (value string, ok bool)

const envPrefix = "ADBUFFER"

// overrides writes the values of variables over those of the file. Every scalar
// has a variable: its path in upper case, joined by underscores, elements of
// lists by their index from 0: ADBUFFER_SERVER_LISTEN,
// ADBUFFER_SSPS_0_POOL_MAX_CONNS. Variables change elements that the file has
// and add none. An empty variable is ignored, and so is one that names nothing.
type overrides struct {
	*report
	env Env
}

func (o overrides) section(section map[string]any, t reflect.Type, prefix, path string) {
	for _, k := range keysOf(t) {
		name, p := prefix+"_"+strings.ToUpper(k.name), join(path, k.name)
		if value := o.value(section[k.name], k.typ, name, p); value != nil {
			section[k.name] = value
		}
	}
}

// value returns what replaces old, which is nil where the file says nothing; nil
// if there is still nothing.
func (o overrides) value(old any, t reflect.Type, name, path string) any {
	switch {
	case isList(t):
		list, _ := old.([]any)
		for i, element := range list {
			if element != nil {
				list[i] = o.value(element, t.Elem(), name+"_"+strconv.Itoa(i), at(path, i))
			}
		}
		return old
	case isSection(t):
		section, _ := old.(map[string]any)
		if section == nil {
			section = map[string]any{}
		}
		o.section(section, t, name, path)
		if len(section) == 0 {
			return old
		}
		return section
	}
	text, ok := o.env(name)
	if !ok || text == "" {
		return old
	}
	o.marks[path] = mark{env: name, text: text}
	value, err := parseScalar(text, t)
	if err != nil {
		o.add(path, text, err.Error())
		return old
	}
	return value
}

// The rules that values of the wrong type break.
var (
	errNotInt      = errors.New("must be a whole number")
	errTooLarge    = errors.New("is too large")
	errNotFloat    = errors.New("must be a number")
	errNotBool     = errors.New("must be true or false")
	errNotString   = errors.New("must be text; put it in quotes")
	errNotPrefix   = errors.New(`must be a range of addresses, for example "10.0.0.0/8" or "192.0.2.1/32"`)
	errNotDuration = errors.New(`must be a duration with a unit, for example "80ms"`)
)

// parseScalar turns the text of a variable or a default tag into what YAML would
// give for a value of type t.
func parseScalar(text string, t reflect.Type) (any, error) {
	switch {
	case t == durationType || isText(t):
		return text, nil
	case t.Kind() == reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, errNotInt
		}
		return n, nil
	case t.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, errNotFloat
		}
		return f, nil
	case t.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return nil, errNotBool
		}
		return text == "true", nil
	default:
		return text, nil
	}
}
