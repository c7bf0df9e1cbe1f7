package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// A tag with a mistyped form or key would check nothing.
func TestTagsNameFormsAndKeysThatExist(t *testing.T) {
	rules := 0
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		keys := keysOf(typ)
		wantKeys := func(k key, tag string, in []key) {
			for name := range strings.FieldsSeq(k.tag.Get(tag)) {
				rules++
				testsupport.True(t, name == "." || slices.ContainsFunc(in, func(k key) bool { return k.name == name }), "%s.%s: the tag %s names %q, which is no key", typ, k.name, tag, name)
			}
		}
		for _, k := range keys {
			wantKeys(k, "needs", keys)
			wantKeys(k, "at_most", keys)
			if form := k.tag.Get("form"); form != "" {
				rules++
				testsupport.True(t, forms[form] != nil, "%s.%s: there is no form %q", typ, k.name, form)
			}
			element := k.typ
			if isList(element) || element.Kind() == reflect.Pointer || element.Kind() == reflect.Map {
				element = element.Elem()
			}
			if isSection(element) {
				wantKeys(k, "unique", keysOf(element))
				walk(element)
			}
		}
	}
	walk(documentType)
	walk(testsType)
	testsupport.True(t, rules >= 50, "%d rules are checked", rules)
}
