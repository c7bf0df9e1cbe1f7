package sspsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// duration is a time.Duration that is a string with a unit in JSON.
type duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(text []byte) error {
	v, err := time.ParseDuration(strings.Trim(string(text), `"`))
	if err != nil {
		return fmt.Errorf("%.40s is not a duration with a unit, such as \"80ms\"", text)
	}
	*d = duration(v)
	return nil
}

// wireType is Behaviour with duration in place of time.Duration. A Behaviour is
// copied to and from it, so that its users need not know duration.
var wireType = replaceDurations(reflect.TypeFor[Behaviour]())

func replaceDurations(t reflect.Type) reflect.Type {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return reflect.TypeFor[duration]()
	case t.Kind() != reflect.Struct:
		return t
	}
	var fields []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		f.Type = replaceDurations(f.Type)
		fields = append(fields, f)
	}
	return reflect.StructOf(fields)
}

// copyFields copies between Behaviour and wireType. It skips a nil list.
func copyFields(to, from reflect.Value) {
	switch {
	case from.Kind() == reflect.Struct:
		for i := range from.NumField() {
			copyFields(to.Field(i), from.Field(i))
		}
	case from.Kind() != reflect.Slice || !from.IsNil():
		to.Set(from.Convert(to.Type()))
	}
}

// MarshalJSON writes every key.
func (b Behaviour) MarshalJSON() ([]byte, error) {
	// A list without elements is [], not null.
	b.Response.Headers = append([]Field{}, b.Response.Headers...)
	b.Faults.Malformed.Kinds = append([]Malformation{}, b.Faults.Malformed.Kinds...)
	wire := reflect.New(wireType)
	copyFields(wire.Elem(), reflect.ValueOf(b))
	return json.Marshal(wire.Interface())
}

// UnmarshalJSON decodes data over b. Absent keys keep their value; a list replaces the whole list.
// The error is an *InvalidError: the first unknown key or value of a wrong type, or all values that
// are out of range.
func (b *Behaviour) UnmarshalJSON(data []byte) error {
	old := *b
	old.Response.Headers, old.Faults.Malformed.Kinds = nil, nil
	wire := reflect.New(wireType)
	copyFields(wire.Elem(), reflect.ValueOf(old))
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil { // not one value, or bytes after it
		return &InvalidError{Mistakes: []string{"not JSON: " + err.Error()}}
	}
	if err := dec.Decode(wire.Interface()); err != nil {
		return invalidJSON(err)
	}
	next := *b
	copyFields(reflect.ValueOf(&next).Elem(), wire.Elem())
	if err := next.Validate(); err != nil {
		return err
	}
	*b = next.clone()
	return nil
}

func invalidJSON(err error) error {
	mistake := strings.TrimPrefix(err.Error(), "json: ")
	if key, unknown := strings.CutPrefix(mistake, "unknown field "); unknown {
		mistake = fmt.Sprintf("unknown key %s; the keys are %s", key, strings.Join(keys(wireType), ", "))
	}
	return &InvalidError{Mistakes: []string{mistake}}
}

// keys returns the JSON keys of a struct and of all structs in it, sorted.
func keys(t reflect.Type) (all []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if key := f.Tag.Get("json"); key != "" {
			all = append(all, key)
		}
		if f.Type.Kind() == reflect.Struct {
			all = append(all, keys(f.Type)...)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}
