package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"adbuffer/internal/ssp/ssp"
)

const maxText = 4096 // bytes

// checkSection checks every value at and below section v against the tags of its key, and every text
// against the rules that hold for all texts.
func (r *report) checkSection(v reflect.Value, path string) {
	for _, k := range keysOf(v.Type()) {
		p := join(path, k.name)
		r.checkValue(v.FieldByIndex(k.index), k, p)
		r.checkSiblings(v, k, p)
	}
}

func (r *report) checkValue(v reflect.Value, k key, path string) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch t := v.Type(); {
	case isSection(t):
		r.checkSection(v, path)
	case isList(t):
		r.checkList(v, k, path)
	case t.Kind() == reflect.Map:
		for _, name := range v.MapKeys() {
			p := join(path, shown(name.String()))
			if check := forms[k.tag.Get("form")]; check != nil && check(name.String()) != "" {
				r.add(p, nil, check(name.String()))
			}
			r.checkValue(v.MapIndex(name), key{typ: t.Elem()}, p)
		}
	case k.tag.Get("text") == "any":
	case t.Kind() == reflect.String:
		r.checkText(v.String(), k, path)
	case v.CanInt() && !isText(t) || v.CanFloat():
		low, high := reflect.ValueOf(defaultValue(k.tag.Get("min"), t, k.name)), reflect.ValueOf(defaultValue(k.tag.Get("max"), t, k.name))
		if !notAbove(low, v) || !notAbove(v, high) { // NaN too
			rule := "must be from " + written(low) + " to " + written(high)
			if isSize(path) {
				rule += " bytes"
			}
			r.add(path, written(v), rule)
		}
	}
}

// notAbove reports whether a <= b. Both are numbers, or both are durations.
func notAbove(a, b reflect.Value) bool {
	if a.CanFloat() {
		return a.Float() <= b.Float()
	}
	return a.Int() <= b.Int()
}

// written returns a value as YAML writes it.
func written(v reflect.Value) string { return nodeOf(v, false).Value }

func (r *report) checkText(text string, k key, path string) {
	words, rule := wordsOf(k), k.tag.Get("empty")
	switch check := forms[k.tag.Get("form")]; {
	case len(words) > 0:
		if !slices.Contains(words, text) {
			r.add(path, text, "must be one of "+strings.Join(words, ", "))
		}
		return
	case text == "":
		if rule != "" {
			r.add(path, nil, rule)
		}
		return
	case len(text) > maxText:
		rule = fmt.Sprintf("must not be longer than %d bytes", maxText)
	case strings.Contains(text, Hidden):
		rule = "must not hold " + Hidden + ", which replaces a secret where a configuration is shown; check --show-secrets shows the secret"
	case strings.ContainsFunc(text, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f || c == '\uFFFD' }):
		rule = "must not hold control characters or broken UTF-8"
	case check != nil:
		rule = check(text)
	default:
		return
	}
	if rule != "" {
		r.add(path, text, rule)
	}
}

// checkList checks the elements of a list and, if k has the tag unique, that no two elements are equal
// when case is ignored. Of the keys of qps.shape, only header fields ignore case.
func (r *report) checkList(v reflect.Value, k key, path string) {
	if rule := k.tag.Get("empty"); rule != "" && v.Len() == 0 && !k.isAbsent(v) {
		r.add(path, nil, rule)
	}
	k.typ = v.Type().Elem()
	unique, seen, fold := k.tag.Get("unique"), map[string]string{}, strings.ToLower
	if k.tag.Get("form") == "shape key" {
		fold = ssp.FoldShapeKey
	}
	for i := range v.Len() {
		element, p := v.Index(i), at(path, i)
		if element.Kind() == reflect.String && element.String() == "" {
			r.add(p, nil, "must not be empty")
		}
		r.checkValue(element, k, p)
		if unique == "" {
			continue
		}
		if unique != "." {
			element, p = sibling(element, unique), join(p, unique)
		}
		text := written(element)
		if first, ok := seen[fold(text)]; ok {
			r.add(p, text, "must be unique; "+first+" has it too")
		} else if !r.isBad(r.origin(p)) {
			seen[fold(text)] = r.origin(p)
		}
	}
}

// sibling returns the value of a key of section v.
func sibling(v reflect.Value, name string) reflect.Value {
	keys := keysOf(v.Type())
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	return v.FieldByIndex(keys[i].index)
}

// checkSiblings checks key k of section v against the other keys of the section.
func (r *report) checkSiblings(v reflect.Value, k key, path string) {
	value, other := v.FieldByIndex(k.index), k.tag.Get("needs")
	if other != "" && !value.IsZero() && sibling(v, other).IsZero() {
		r.add(path, written(value), "needs "+other+" beside it")
	}
	if strings.HasPrefix(path, "ssp_defaults.") {
		return // the other keys may have no value yet; each SSP is checked after ssp_defaults are merged into it
	}
	var bounds []string
	for other := range strings.FieldsSeq(k.tag.Get("at_most")) {
		p := join(parent(path), other)
		bounds = append(bounds, p)
		if bound := sibling(v, other); !notAbove(value, bound) {
			r.add(path, written(value), "must not be above "+r.origin(p)+", "+written(bound), bounds...)
		}
	}
}
