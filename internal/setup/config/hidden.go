package config

import (
	"slices"
	"strings"

	"adbuffer/internal/wire/header"
)

// Hidden replaces a possible secret wherever a configuration or a part of it is shown. A
// configuration that contains it is refused.
const Hidden = "(hidden)"

// Possible secrets are:
//
//   - Every value in the query of an endpoint (SSPs call their keys pub, seat or id).
//   - The user and the password in any URL.
//   - The value of a field in headers.set, unless plainFields names the field.
//   - The value of a condition whose name contains a word such as token or key.
//
// Tokens, passwords and keys in files are never shown. Paths and hosts are always shown.

// hiders holds the functions that the tag hide names. A hider gets the value, and the key name of the
// section that holds it ("" if the section has no such key). It returns the value as it may be shown.
var hiders = map[string]func(name, value string) string{
	"url":       func(_, value string) string { return HideURL(value) },
	"field":     HideField,
	"condition": hideCondition,
}

func hideCondition(name, value string) string {
	if value != "" && header.NamesSecret(name) {
		return Hidden
	}
	return value
}

// HideURL returns a URL with its query values, user, password and fragment hidden. Every text with
// "://" is treated as a URL.
func HideURL(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		return u
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = Hidden + authority[at:]
	}
	u = scheme + "://" + authority + path
	if hasQuery {
		u += "?" + HideQuery(query)
	}
	if hasFragment && fragment != "" {
		u += "#" + Hidden
	}
	return u
}

// HideQuery returns a query with the values of its parameters hidden. A parameter without a value is
// hidden entirely, because it may be a key.
func HideQuery(query string) string {
	params := strings.Split(query, "&")
	for i, param := range params {
		name, value, _ := strings.Cut(param, "=")
		switch {
		case param == "":
		case strings.Trim(value, "=") == "": // "name=" looks like the end of base64
			params[i] = Hidden
		default:
			params[i] = name + "=" + Hidden
		}
	}
	return strings.Join(params, "&")
}

// plainFields are the header fields whose values hold no secret, in lower case.
var plainFields = []string{"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-type", "priority", "user-agent", "via", "x-openrtb-version"}

// HideField returns the value of a field in headers.set as it may be shown.
func HideField(name, value string) string {
	if value == "" || slices.Contains(plainFields, strings.ToLower(name)) {
		return value
	}
	return Hidden
}

// ShownURLs returns the URLs of the endpoints as they may be shown.
func (s *SSP) ShownURLs() []string {
	hidden := make([]string, len(s.Endpoints))
	for i, e := range s.Endpoints {
		hidden[i] = HideURL(e.URL)
	}
	return hidden
}
