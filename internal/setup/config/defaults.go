package config

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"adbuffer/internal/request/route"
)

// defaults returns the default of every key at and below section type t, in the form that the decoder
// returns.
func defaults(t reflect.Type) map[string]any {
	section := map[string]any{}
	for _, k := range keysOf(t) {
		if value := defaultOf(k); value != nil {
			section[k.name] = value
		}
	}
	return section
}

// defaultOf returns the default of k, or nil for a key whose absence has a meaning of its own.
func defaultOf(k key) any {
	text := k.tag.Get("default")
	switch {
	case k.typ.Kind() == reflect.Pointer:
		return nil
	case isSection(k.typ):
		return defaults(k.typ)
	case isList(k.typ):
		list := []any{}
		for element := range strings.FieldsSeq(text) {
			list = append(list, defaultValue(element, k.typ.Elem(), k.name))
		}
		return list
	case text == "" && k.typ.Kind() != reflect.String:
		return reflect.Zero(k.typ).Interface()
	}
	return defaultValue(text, k.typ, k.name)
}

func defaultValue(text string, t reflect.Type, key string) any {
	value, err := parseScalar(text, t)
	if err != nil {
		panic(fmt.Sprintf("BUG: default of %s: %v", key, err))
	}
	return value
}

// merge returns base overlaid with the keys of over. Mappings are merged, lists are replaced.
func merge(base, over map[string]any) map[string]any {
	merged := make(map[string]any, len(base)+len(over))
	maps.Copy(merged, base)
	for name, value := range over {
		below, isMap := value.(map[string]any)
		if old, ok := merged[name].(map[string]any); ok && isMap {
			value = merge(old, below)
		}
		merged[name] = value
	}
	return merged
}

// completeLists fills in the absent keys of list elements, since viper applies no defaults inside lists.
// An SSP gets them from ssp_defaults, or else from the defaults; a route gets them from the defaults.
func completeLists(tree map[string]any) {
	shared, _ := tree["ssp_defaults"].(map[string]any)
	replaceEach(tree["ssps"], func(ssp map[string]any) map[string]any {
		ssp = merge(shared, ssp)
		replaceEach(ssp["endpoints"], func(endpoint map[string]any) map[string]any {
			return merge(defaults(reflect.TypeFor[Endpoint]()), endpoint)
		})
		return merge(merge(defaults(reflect.TypeFor[SSP]()), derived(ssp)), ssp)
	})
	replaceEach(tree["routes"], func(rt map[string]any) map[string]any {
		weight := 0
		if rt["mode"] == string(route.Split) {
			weight = 1
		}
		replaceEach(rt["ssps"], func(leg map[string]any) map[string]any {
			return merge(merge(defaults(reflect.TypeFor[RouteSSP]()), map[string]any{"weight": weight}), leg)
		})
		return merge(defaults(reflect.TypeFor[Route]()), rt)
	})
}

// maxConnsLimit is the highest max_conns.
const maxConnsLimit = 65536

// derived returns the defaults of an SSP's keys that depend on the value of another key: those that depend on max_conns.
func derived(ssp map[string]any) map[string]any {
	pool := merge(defaults(reflect.TypeFor[Pool]()), section(ssp, "pool"))
	maxConns, ok := pool["max_conns"].(int)
	if !ok || maxConns < 1 || maxConns > maxConnsLimit {
		return nil // max_conns is reported as invalid; keys derived from it must not be reported too
	}
	fromMaxConns := map[string]any{"max_idle": maxConns}
	if http2, ok := pool["max_http2_conns"].(int); ok && http2 > maxConns {
		fromMaxConns["max_http2_conns"] = maxConns
	}
	return map[string]any{"pool": fromMaxConns}
}

func section(tree map[string]any, name string) map[string]any {
	below, _ := tree[name].(map[string]any)
	return below
}

// replaceEach replaces each mapping in a list by the result of change.
func replaceEach(list any, change func(map[string]any) map[string]any) {
	elements, _ := list.([]any)
	for i, element := range elements {
		if m, ok := element.(map[string]any); ok {
			elements[i] = change(m)
		}
	}
}
