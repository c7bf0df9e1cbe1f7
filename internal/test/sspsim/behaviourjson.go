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

// Duration is a time.Duration that is a string with a unit in JSON.
type Duration time.Duration

// String returns the duration with its unit.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(text []byte) error {
	v, err := time.ParseDuration(strings.Trim(string(text), `"`))
	if err != nil {
		return fmt.Errorf("%.40s is not a duration with a unit, such as \"80ms\"", text)
	}
	*d = Duration(v)
	return nil
}

// plainBehaviour is a Behaviour without methods, so encoding/json treats it as any struct.
type plainBehaviour Behaviour

// MarshalJSON writes every key.
func (b Behaviour) MarshalJSON() ([]byte, error) {
	// A list without elements is [], not null.
	b.Response.Headers = append([]Field{}, b.Response.Headers...)
	b.Response.FillBy = append([]string{}, b.Response.FillBy...)
	b.Faults.Malformed.Kinds = append([]Malformation{}, b.Faults.Malformed.Kinds...)
	return json.Marshal(plainBehaviour(b))
}

// UnmarshalJSON decodes data over b. Absent keys keep their value; a list replaces the whole list.
// The error is an *InvalidError: the first unknown key or value of a wrong type, or all values that
// are out of range.
func (b *Behaviour) UnmarshalJSON(data []byte) error {
	next := *b
	next.Response.Headers, next.Response.FillBy, next.Faults.Malformed.Kinds = nil, nil, nil // the decoder would write into them
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil { // not one value, or bytes after it
		return &InvalidError{Mistakes: []string{"not JSON: " + err.Error()}}
	}
	if err := dec.Decode((*plainBehaviour)(&next)); err != nil {
		return invalidJSON(err)
	}
	if next.Response.Headers == nil {
		next.Response.Headers = b.Response.Headers
	}
	if next.Response.FillBy == nil {
		next.Response.FillBy = b.Response.FillBy
	}
	if next.Faults.Malformed.Kinds == nil {
		next.Faults.Malformed.Kinds = b.Faults.Malformed.Kinds
	}
	if err := next.Validate(); err != nil {
		return err
	}
	*b = next.clone()
	return nil
}

func invalidJSON(err error) error {
	mistake := strings.TrimPrefix(err.Error(), "json: ")
	if key, unknown := strings.CutPrefix(mistake, "unknown field "); unknown {
		mistake = fmt.Sprintf("unknown key %s; the keys are %s", key, strings.Join(Keys(), ", "))
	}
	return &InvalidError{Mistakes: []string{mistake}}
}

// Keys returns the JSON keys of a Behaviour, of all levels, sorted.
func Keys() []string { return keys(reflect.TypeFor[Behaviour]()) }

// keys returns the JSON keys of a struct and of all structs in it, sorted.
func keys(t reflect.Type) (all []string) {
	for f := range t.Fields() {
		if key := f.Tag.Get("json"); key != "" {
			all = append(all, key)
		}
		if f.Type.Kind() == reflect.Struct {
			all = append(all, keys(f.Type)...)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
}
