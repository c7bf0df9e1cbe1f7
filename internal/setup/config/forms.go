package config

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
)

// A form checks a text. It returns the rule that the text breaks, or "".
type form func(text string) (rule string)

// forms holds the forms by the names that the tag form uses.
var forms = map[string]form{
	"admin listener":    addressForm("127.0.0.1:8080", true, false),
	"deadline field":    fieldAnd(fieldRule, header.CheckDeadline),
	"exact path":        exactPathRule,
	"fairness key":      fairnessRule,
	"field value":       must(isTrimmed, "not hold control characters, nor begin or end with a space"),
	"forwarded field":   forwardedFieldRule,
	"header field":      tokenRule,
	"host":              must(syntax.IsHost, "be a host name without a port"),
	"host and port":     must(isAuthority, "be a host name or address, with a port or without"),
	"host pattern":      must(isHostPattern, `be a host name without a port, or "*.example.com" for every name below it`),
	"listener":          addressForm("127.0.0.1:8080", true, true),
	"member to set":     memberRule,
	"merge":             must(func(s string) bool { return s == MergeOpenRTB }, `be openrtb, or "" for adbuffer's own document`),
	"method":            must(func(s string) bool { return tokenRule(s) == "" }, "be a method, for example POST"),
	"name":              must(isName, "be 1 to 64 of a-z, 0-9, _ and -"),
	"OpenRTB path":      openRTBPathRule,
	"outcome":           must(exchange.IsRefusal, "be the word with which explain and the log name an error, such as no_route"),
	"origin":            must(isOrigin, `be an origin as browsers send it, such as https://www.example.com: in lower case, without a path and without the scheme's own port; or null; or "*" for all`),
	"passed field":      fieldAnd(forwardedFieldRule, header.CheckPass),
	"path":              pathRule,
	"prefix of keys":    must(isKeyPrefix, "be 1 to 64 bytes of printable ASCII without spaces"),
	"Redis":             addressForm("redis.internal:6379", false, true),
	"request id field":  fieldAnd(forwardedFieldRule, header.CheckRequestID),
	"status":            must(isMaskedStatus, "be 4xx, 5xx, or a status from 400 to 599, in quotes"),
	"shape key":         shapeKeyRule,
	"request URL":       must(isRequestURL, "be a URL of http or https, or a path that begins with /"),
	"set field":         fieldAnd(forwardedFieldRule, checkSetField),
	"URL of a receiver": receiverForm,
}

// fairnessRule is the form of server.fairness.key.
func fairnessRule(key string) string {
	from, name, named := strings.Cut(key, ":")
	switch {
	case key == "client_ip":
		return ""
	case from == "header" && named:
		return tokenRule(name)
	case from == "query" && name != "" && isGraphic(name) && !strings.ContainsAny(name, "&=#"):
		return ""
	case from == "query" && named:
		return "must name a query parameter as it is in a URL, for example query:pub"
	case from == "openrtb" && strings.HasPrefix(name, "/") && !slices.ContainsFunc(strings.Split(name[1:], "/"), func(s string) bool { return s == "" || s == "*" }) && isGraphic(name):
		return ""
	case from == "openrtb" && named:
		return "must name a member by the names on the way to it, for example openrtb:/site/publisher/id"
	}
	return "must be client_ip, header:NAME, query:NAME or openrtb:/path"
}

// shapeKeyRule is the form of a key of qps.shape.
func shapeKeyRule(key string) string {
	if key == "client_ip" {
		return "must not be client_ip, since clients choose their addresses, and there are too many of them to learn from; use header:NAME, query:NAME or openrtb:/path"
	}
	return strings.Replace(fairnessRule(key), "client_ip, ", "", 1)
}

// must returns a form that accepts the texts for which valid is true.
func must(valid func(string) bool, rule string) form {
	return func(text string) string {
		if valid(text) {
			return ""
		}
		return "must " + rule
	}
}

// isGraphic reports whether s is printable ASCII without spaces.
func isGraphic(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}

const maxName = 64 // bytes

// isName reports whether s is short and plain enough to be the value of a metric's label.
func isName(s string) bool {
	return len(s) <= maxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

func isRequestURL(s string) bool {
	return strings.HasPrefix(s, "/") || strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

func isTrimmed(s string) bool { return syntax.IsTrimmedValue([]byte(s)) }

func isKeyPrefix(s string) bool { return len(s) <= maxName && isGraphic(s) }

// addressForm returns the form of an address. Only a listener may omit the host, or have port 0.
func addressForm(example string, isListener, unixToo bool) form {
	rule := `be host:port, for example "` + example + `"`
	if unixToo {
		rule += ", or unix:/path of at most 107 bytes"
	}
	return must(func(text string) bool {
		network, address := Address(text).Split()
		if network == "unix" {
			// The kernel's sun_path has 108 bytes, of which the last one is zero.
			return unixToo && strings.HasPrefix(address, "/") && !strings.HasSuffix(address, "/") && len(address) <= 107
		}
		host, port, err := net.SplitHostPort(address)
		return err == nil && isPort(port) && (syntax.IsHost(host) || isListener && host == "") && (isListener || strings.Trim(port, "0") != "")
	}, rule)
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// isAuthority reports whether s is a host with or without a port, IPv6 in brackets.
func isAuthority(s string) bool {
	u, err := url.Parse("http://" + s)
	return err == nil && u.Host == s && syntax.IsHost(u.Hostname()) &&
		(u.Port() == "" || isPort(u.Port())) && !strings.HasSuffix(s, ":")
}

// withoutFinalDot returns host[:port] without the dot that ends an absolute DNS name.
func withoutFinalDot(authority string) string {
	return strings.TrimSuffix(strings.Replace(authority, ".:", ":", 1), ".")
}

func isHostPattern(s string) bool {
	s = strings.TrimPrefix(s, "*.")
	return isAuthority(s) && strings.LastIndexByte(s, ':') <= strings.LastIndexByte(s, ']')
}

// receiverForm is the form of the URL of an OTLP receiver of spans. It refuses a query, since the
// exporter would not send it.
func receiverForm(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return `must be an http or https URL, for example "http://127.0.0.1:4318/v1/traces"`
	case u.User != nil:
		return "must not hold a user or a password"
	case u.Fragment != "":
		return "must not have a fragment"
	case strings.Contains(text, "?"):
		return "must not have a query; OTEL_EXPORTER_OTLP_TRACES_HEADERS sends a key in a header field"
	}
	return ""
}

// pathRule is the form of a path in a route's match. adbuffer compares it byte by byte with the path
// that a client sends.
func pathRule(path string) string {
	const maxPath = 1024
	exact := strings.TrimSuffix(path, "/*")
	parts := strings.Split(exact, "/")
	switch {
	case !strings.HasPrefix(path, "/"):
		return "must begin with /"
	case len(path) > maxPath:
		return fmt.Sprintf("must not be longer than %d bytes", maxPath)
	case !isGraphic(path) || strings.ContainsAny(path, "?#"):
		return "must be a path as it is in a URL: printable ASCII without ? and #"
	case strings.Contains(exact, "*"):
		return `may have * only as "/*" at its end`
	case slices.Contains(parts, ".") || slices.Contains(parts, ".."):
		return "must not hold . or .. as a part; such requests are refused"
	}
	return ""
}

// isOrigin reports whether s is "*", or an origin as browsers serialize it.
func isOrigin(s string) bool {
	if s == "*" || s == "null" {
		return true
	}
	u, err := url.Parse(s)
	return err == nil && s == strings.ToLower(u.Scheme+"://"+u.Host) && isAuthority(u.Host) &&
		(u.Scheme != "https" || u.Port() != "443") && (u.Scheme != "http" || u.Port() != "80")
}

// isMaskedStatus reports whether s is a status, or a class of statuses, that on_error may replace.
func isMaskedStatus(s string) bool {
	if s == "4xx" || s == "5xx" {
		return true
	}
	status, ok := syntax.ParseStatus([]byte(s))
	return ok && status >= 400
}

// openRTBPathRule is the form of a path to members of a body.
func openRTBPathRule(path string) string {
	if _, err := openrtb.ParsePath(path); err != nil {
		return err.Error()
	}
	return ""
}

// memberRule is openRTBPathRule for a path to one member.
func memberRule(path string) string {
	if slices.Contains(strings.Split(path, "."), openrtb.AnyElement) {
		return "must not hold *: set changes one member"
	}
	return openRTBPathRule(path)
}

func exactPathRule(path string) string {
	if rule := pathRule(path); rule != "" || !strings.HasSuffix(path, "/*") {
		return rule
	}
	return "must be one exact path"
}

// tokenRule is the form of a field's name (RFC 9110, section 5.6.2).
func tokenRule(name string) string {
	if syntax.IsToken([]byte(name)) {
		return ""
	}
	return "must be a header field name: letters, digits and !#$%&'*+-.^_`|~"
}

// fieldRule is tokenRule, but refuses the fields that belong to one connection or to the framing of one
// message (RFC 9110, sections 7.6.1 and 8.6), since adbuffer writes or drops those itself.
func fieldRule(name string) string {
	switch strings.ToLower(name) {
	case "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings", "expect":
		return "belongs to one connection and is never forwarded"
	case "transfer-encoding", "content-length":
		return "frames the body, which adbuffer does itself"
	case "host":
		return "is the endpoint's; set it with host"
	}
	return tokenRule(name)
}

// forwardedFieldRule is fieldRule for a field that adbuffer forwards.
func forwardedFieldRule(name string) string {
	if strings.HasPrefix(strings.ToLower(name), "x-adbuffer-") {
		return "X-Adbuffer-* is between adbuffer and its clients and is never forwarded"
	}
	return fieldRule(name)
}

// fieldAnd returns a form that applies f and then check, a function of package header. That package
// knows which fields would have no effect, or another effect than the operator expects.
func fieldAnd(f form, check func(name string) error) form {
	return func(name string) string {
		rule := f(name)
		if err := check(name); rule == "" && err != nil {
			rule = err.Error()
		}
		return rule
	}
}

func checkSetField(name string) error { return header.CheckSet(header.NameValue{Name: name}) }
