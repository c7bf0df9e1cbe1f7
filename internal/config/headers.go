package config

import (
	"cmp"
	"strings"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/httpsyntax"
)

// ownFields are the fields that belong to one connection or one message's framing
// (RFC 9110, sections 7.6.1 and 8.6): adbuffer writes or drops them itself.
var ownFields = map[string]string{
	"connection":        "is of one connection and never crosses",
	"keep-alive":        "is of one connection and never crosses",
	"proxy-connection":  "is of one connection and never crosses",
	"te":                "is of one connection and never crosses",
	"trailer":           "is of one connection and never crosses",
	"upgrade":           "is of one connection and never crosses",
	"http2-settings":    "is of one connection and never crosses",
	"expect":            "is of one connection and never crosses",
	"transfer-encoding": "frames the body, which adbuffer does itself",
	"content-length":    "frames the body, which adbuffer does itself",
	"host":              "is the endpoint's; set it with host",
}

// tokenRule is the rule that a name breaks which no field can have (RFC 9110,
// section 5.6.2), or "".
func tokenRule(name string) string {
	if !httpsyntax.IsToken([]byte(name)) {
		return "must be a header field name: letters, digits and !#$%&'*+-.^_`|~"
	}
	return ""
}

// headerNameRule is tokenRule for a field that is the operator's to name.
func headerNameRule(name string) string {
	return cmp.Or(tokenRule(name), ownFields[strings.ToLower(name)])
}

// crossingRule is headerNameRule for a field that is to cross the proxy.
func crossingRule(name string) string {
	if strings.HasPrefix(strings.ToLower(name), "x-adbuffer-") {
		return "X-Adbuffer-* is between adbuffer and its clients and never crosses"
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
		if !httpsyntax.IsTrimmedValue([]byte(field.Value)) {
			r.add(value, field.Value, "must not hold control characters, nor begin or end with a space")
		}
	}
}

// checkSetName leaves the value to checkHeaders.
func checkSetName(name string) error { return httpheader.CheckSet(httpheader.NameValue{Name: name}) }

func checkFieldNames(names []string, path string, useless func(string) error, r *report) {
	seen := map[string]string{}
	for i, name := range names {
		checkFieldName(name, at(path, i), seen, useless, r)
	}
}

// checkFieldName reports a name that cannot cross, is in its list already, or,
// as useless says, would have no effect there. seen holds the path of each name
// so far, in lower case.
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
