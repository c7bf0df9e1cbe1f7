package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// decode lays what the file and the variables say over the defaults and turns
// the result into the struct tree, strictly. Values that do not fit their type are
// reported and left zero.
func decode(tree map[string]any, r *report) *document {
	v := viper.NewWithOptions(viper.KeyDelimiter("::"))
	for _, k := range keysOf(reflect.TypeFor[document]()) {
		v.SetDefault(k.name, defaultOf(k))
	}
	completeLists(tree)
	if err := v.MergeConfigMap(tree); err != nil {
		panic(fmt.Sprintf("BUG: viper refuses a map: %v", err))
	}
	var doc document
	err := v.UnmarshalExact(&doc, func(c *mapstructure.DecoderConfig) {
		c.TagName = "yaml"
		c.SquashTagOption = "inline"
		c.WeaklyTypedInput = false
		c.DecodeHook = mapstructure.ComposeDecodeHookFunc(
			durationsNeedUnits,
			typesFit,
			mapstructure.StringToTimeDurationHookFunc(),
			mapstructure.TextUnmarshallerHookFunc(),
		)
	})
	addDecodeErrors(err, r)
	return &doc
}

// durationsNeedUnits refuses `timeout: 80`, which viper would read as 80 ns.
func durationsNeedUnits(from, to reflect.Type, v any) (any, error) {
	if to != durationType || from == durationType {
		return v, nil
	}
	text, ok := v.(string)
	if !ok || text == "0" {
		return nil, errNotDuration
	}
	if _, err := time.ParseDuration(text); err != nil {
		return nil, errNotDuration
	}
	return v, nil
}

// typesFit refuses what mapstructure would bend: 2.7 to an int, 0660 to a file
// mode, numbers beyond int64.
func typesFit(from, to reflect.Type, v any) (any, error) {
	kind := from.Kind()
	switch {
	case from == to:
	case to == durationType || isText(to) || to.Kind() == reflect.String:
		if kind != reflect.String {
			return nil, errNotString
		}
		if to == prefixType {
			if _, err := netip.ParsePrefix(v.(string)); err != nil {
				return nil, errNotPrefix
			}
		}
	case to.Kind() == reflect.Int:
		if kind == reflect.Uint64 {
			return nil, errTooLarge
		}
		if kind != reflect.Int && kind != reflect.Int64 {
			return nil, errNotInt
		}
	case to.Kind() == reflect.Float64:
		if kind != reflect.Int && kind != reflect.Int64 && kind != reflect.Float64 {
			return nil, errNotFloat
		}
	case to.Kind() == reflect.Bool:
		if kind != reflect.Bool {
			return nil, errNotBool
		}
	}
	return v, nil
}

// addDecodeErrors reports every error in the tree that mapstructure returns, each
// of which knows its path.
func addDecodeErrors(err error, r *report) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree of errors itself
	case nil:
	case *mapstructure.DecodeError:
		r.add(e.Name(), r.marks[r.origin(e.Name())].text, e.Unwrap().Error())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			addDecodeErrors(one, r)
		}
	case interface{ Unwrap() error }:
		addDecodeErrors(e.Unwrap(), r)
	default:
		r.addMissing("", err.Error())
	}
}
