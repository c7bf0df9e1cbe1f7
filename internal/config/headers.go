package config

import (
	"cmp"
	"strings"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/syntax"
)

// ownFields are the fields that belong to one connection or one message's framing
// (RFC 9110, sections 7.6.1 and 8.6): adbuffer writes or drops them itself.
var ownFields = map[string]string{
	"connection":        "belongs to one connection and is never forwarded",
	"keep-alive":        "belongs to one connection and is never forwarded",
	"proxy-connection":  "belongs to one connection and is never forwarded",
	"te":                "belongs to one connection and is never forwarded",
	"trailer":           "belongs to one connection and is never forwarded",
	"upgrade":           "belongs to one connection and is never forwarded",
	"http2-settings":    "belongs to one connection and is never forwarded",
	"expect":            "belongs to one connection and is never forwarded",
	"transfer-encoding": "frames the body, which adbuffer does itself",
	"content-length":    "frames the body, which adbuffer does itself",
	"host":              "is the endpoint's; set it with host",
}

// tokenRule returns the rule that an invalid field name breaks (RFC 9110, section 5.6.2),
// or "".
func tokenRule(name string) string {
	if !syntax.IsToken([]byte(name)) {
		return "must be a header field name: letters, digits and !#$%&'*+-.^_`|~"
	}
	return ""
}

// headerNameRule is tokenRule for a field whose name an operator may choose.
func headerNameRule(name string) string {
	return cmp.Or(tokenRule(name), ownFields[strings.ToLower(name)])
}

// crossingRule is headerNameRule for a field that adbuffer forwards.
func crossingRule(name string) string {
	if strings.HasPrefix(strings.ToLower(name), "x-adbuffer-") {
		return "X-Adbuffer-* is between adbuffer and its clients and is never forwarded"
	}
	return headerNameRule(name)
}

func checkHeaders(h *Headers, path string, r *report) {
	checkFieldNames(h.Pass, join(path, "pass"), httpheader.CheckPass, r)
	checkFieldNames(h.Remove, join(path, "remove"), httpheader.CheckRemove, r)
	seen := map[string]string{}
	for i, field := range h.Set {
		p := at(join(path, "set"), i)
		name, value := join(p, "name"), join(p, "value")
		checkFieldName(field.Name, name, seen, checkSetName, r)
		if !syntax.IsTrimmedValue([]byte(field.Value)) {
			r.add(value, field.Value, "must not hold control characters, nor begin or end with a space")
		}
	}
}

// checkSetName checks a name only; checkHeaders checks the value.
func checkSetName(name string) error { return httpheader.CheckSet(httpheader.NameValue{Name: name}) }

func checkFieldNames(names []string, path string, useless func(string) error, r *report) {
	seen := map[string]string{}
	for i, name := range names {
		checkFieldName(name, at(path, i), seen, useless, r)
	}
}

// checkFieldName reports a name that cannot be forwarded or is in its list twice. It also reports a
// name for which useless returns an error, because it has no effect there. seen holds the path of
// each name so far, in lower case.
func checkFieldName(name, path string, seen map[string]string, useless func(string) error, r *report) {
	if name == "" {
		r.addMissing(path, "must be set")
		return
	}
	if rule := crossingRule(name); rule != "" {
		r.add(path, name, rule)
		return
	}
	if err := useless(name); err != nil {
		r.add(path, name, err.Error())
		return
	}
	lower := strings.ToLower(name)
	if first, ok := seen[lower]; ok {
		r.add(path, name, "must be in the list once; it is "+r.origin(first)+" too")
		return
	}
	seen[lower] = path
}
