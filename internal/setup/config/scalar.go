package config

import (
	"encoding"
	"errors"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// The rules that a value of the wrong type breaks.
var (
	errNotInt      = errors.New("must be a whole number")
	errTooLarge    = errors.New("is too large")
	errNotFloat    = errors.New("must be a number")
	errNotBool     = errors.New("must be true or false")
	errNotString   = errors.New("must be text; put it in quotes")
	errNotPrefix   = errors.New(`must be a range of addresses, for example "10.0.0.0/8" or "192.0.2.1/32"`)
	errNotAddr     = errors.New(`must be an IP address, for example "192.0.2.1"`)
	errOctal       = errors.New("must not have leading zeros, since YAML reads 0100 as 64")
	errNotDuration = errors.New(`must be a duration with a unit, for example "80ms"`)
)

// parseScalar converts the text of a variable or of a default to type t.
func parseScalar(text string, t reflect.Type) (any, error) {
	switch {
	case t == durationType || isText(t):
	case t == jsonValueType:
		return jsonValueOfText(text)
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
	}
	return fit(text, t)
}

// isAmbiguous reports whether the value that YAML gives a number differs from its decimal digits: 0123
// is 83, 0x1f is 31, 1_000 is 1000. The operator may have meant such text as an identifier.
func isAmbiguous(number string) bool {
	digits := strings.TrimLeft(number, "+-")
	return hasLeadingZero(number) || strings.Contains(digits, "_") || len(digits) > 1 && digits[0] == '0' && strings.ContainsRune("xXoObB", rune(digits[1]))
}

// hasLeadingZero reports whether a number begins with a zero that another digit or an underscore follows.
func hasLeadingZero(number string) bool {
	digits := strings.TrimLeft(number, "+-")
	return len(digits) > 1 && digits[0] == '0' && (digits[1] == '_' || digits[1] >= '0' && digits[1] <= '9')
}

// fit returns a decoded YAML scalar as a value of type t. It converts nothing that might be a mistake: 2.7 is not rounded,
// 0660 becomes no text such as a file mode, and 80 without a unit becomes no duration.
func fit(value any, t reflect.Type) (any, error) {
	text, inText := value.(string)
	switch {
	case t == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, errNotDuration
		}
		return d, nil
	case t.Kind() == reflect.Int:
		switch n := value.(type) {
		case int:
			return n, nil
		case uint64:
			return nil, errTooLarge
		}
		return nil, errNotInt
	case t.Kind() == reflect.Float64:
		switch n := value.(type) {
		case int:
			return float64(n), nil
		case uint64:
			return float64(n), nil
		case float64:
			return n, nil
		}
		return nil, errNotFloat
	case t.Kind() == reflect.Bool:
		if b, ok := value.(bool); ok {
			return b, nil
		}
		return nil, errNotBool
	case !inText:
		return nil, errNotString
	case isText(t):
		v := reflect.New(t)
		err := v.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		if err != nil || text == "" { // package netip accepts "" as its zero values
			switch t {
			case reflect.TypeFor[netip.Prefix]():
				err = errNotPrefix
			case reflect.TypeFor[netip.Addr]():
				err = errNotAddr
			}
			return nil, err
		}
		return v.Elem().Interface(), nil
	}
	return text, nil
}
