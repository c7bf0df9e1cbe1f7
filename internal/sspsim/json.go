package sspsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

var durationType = reflect.TypeFor[time.Duration]()

// MarshalJSON writes every key, with durations as strings.
func (b Behaviour) MarshalJSON() ([]byte, error) {
	return appendValue(nil, reflect.ValueOf(b))
}

// UnmarshalJSON puts the keys of data over b; keys that are absent keep their
// value, and lists are replaced whole. The error is an *InvalidError that lists
// unknown and repeated keys, values of the wrong type, and values out of range.
func (b *Behaviour) UnmarshalJSON(data []byte) error {
	var any json.RawMessage
	if err := json.Unmarshal(data, &any); err != nil {
		return &InvalidError{Mistakes: []string{"not JSON: " + err.Error()}}
	}
	next := b.clone()
	var c checker
	c.decode("", any, reflect.ValueOf(&next).Elem())
	var invalid *InvalidError
	if errors.As(next.Validate(), &invalid) {
		c.mistakes = append(c.mistakes, invalid.Mistakes...)
	}
	if err := c.err(); err != nil {
		return err
	}
	*b = next
	return nil
}

// keys returns the fields of a struct by their JSON key, those of embedded
// structs among them, and the keys in order.
func keys(v reflect.Value) (map[string]reflect.Value, []string) {
	fields, order := map[string]reflect.Value{}, []string(nil)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.Anonymous {
			inner, names := keys(v.Field(i))
			for _, name := range names {
				fields[name] = inner[name]
			}
			order = append(order, names...)
		} else {
			name := f.Tag.Get("json")
			fields[name] = v.Field(i)
			order = append(order, name)
		}
	}
	return fields, order
}

func appendValue(out []byte, v reflect.Value) ([]byte, error) {
	switch {
	case v.Type() == durationType:
		return fmt.Appendf(out, "%q", time.Duration(v.Int())), nil
	case v.Kind() == reflect.Struct:
		fields, order := keys(v)
		out = append(out, '{')
		for i, name := range order {
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, "%q:", name)
			var err error
			if out, err = appendValue(out, fields[name]); err != nil {
				return nil, err
			}
		}
		return append(out, '}'), nil
	case v.Kind() == reflect.Slice && v.IsNil():
		return append(out, "[]"...), nil
	}
	text, err := json.Marshal(v.Interface())
	return append(out, text...), err
}

// decode puts raw, which is valid JSON, into v and notes what is wrong with it.
func (c *checker) decode(path string, raw json.RawMessage, v reflect.Value) {
	at := path
	if at == "" {
		at = "behaviour"
	}
	switch {
	case raw[0] == 'n':
		c.add(at, "null is no value; leave the key out")
	case v.Type() == durationType:
		c.decodeDuration(at, raw, v)
	case v.Kind() == reflect.Struct:
		c.decodeStruct(at, path, raw, v)
	case v.Kind() == reflect.Slice:
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			c.add(at, "%.40s is not a list", raw)
			return
		}
		if v.SetZero(); len(list) == 0 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
		for i, item := range list {
			c.decode(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i))
		}
	default:
		if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
			c.add(at, "%.40s is not %s", raw, describe(v.Kind()))
		}
	}
}

func (c *checker) decodeDuration(at string, raw json.RawMessage, v reflect.Value) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		c.add(at, "%.40s has no unit; write for example \"80ms\"", raw)
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		c.add(at, "%.40q is not a duration with a unit, such as \"80ms\"", text)
		return
	}
	v.SetInt(int64(d))
}

func (c *checker) decodeStruct(at, path string, raw json.RawMessage, v reflect.Value) {
	if raw[0] != '{' {
		c.add(at, "%.40s is not an object", raw)
		return
	}
	fields, order := keys(v)
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token() // raw is valid: neither this nor the rest can fail
	for dec.More() {
		token, _ := dec.Token()
		name := token.(string)
		var value json.RawMessage
		_ = dec.Decode(&value)
		inner := strings.TrimPrefix(path+"."+name, ".")
		field, known := fields[name]
		switch {
		case !known:
			c.add(inner, "unknown key; %s has %s", at, strings.Join(order, ", "))
		case seen[name]:
			c.add(inner, "is there twice")
		default:
			seen[name] = true
			c.decode(inner, value, field)
		}
	}
}

func describe(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return "a string"
}
