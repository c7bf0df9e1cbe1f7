//go:build !race

package proxy_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This is a second reader of requests, written from RFC 9112 and adbuffer's stricter rules alone,
// with regular expressions instead of state machines. It has the whole input, and the limits below.

const (
	refMaxHead = 1024
	refMaxBody = 64
)

// refRequest is the expected handling of a request.
type refRequest struct {
	statuses             []int // the response has one of them
	method, target, body string
	forwarded            bool
	last                 bool // the connection ends after it
	open                 bool // the rules leave the handling open: bytes after it are not compared
}

var (
	refLine  = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\\x21-\\x7e]+) HTTP/1\\.([01])$")
	refField = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[\\t\\x20-\\x7e\\x80-\\xff]*[\\x21-\\x7e\\x80-\\xff])?)[ \t]*$")
	refHost  = regexp.MustCompile(`^[A-Za-z0-9-][A-Za-z0-9.-]*(:[0-9]{1,4})?$`)
	refPath  = regexp.MustCompile(`^/[^#]*$`)
	refURL   = regexp.MustCompile(`^(?i:https?)://[A-Za-z0-9._~!$&'()*+,;=:\[\]-]+([/?][^#]*)?$`)
	refPlain = regexp.MustCompile(`^(?i:https?)://[A-Za-z0-9-][A-Za-z0-9.-]*(:[0-9]{1,4})?([/?]|$)`)
	refSize  = regexp.MustCompile(`^([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?$`)
	// For these targets the two readers may differ.
	refOdd = regexp.MustCompile(`[^\x21-\x7e]|%|["<>\\^{|}` + "`" + `]`)
)

func refusal(statuses ...int) refRequest { return refRequest{statuses: statuses, last: true} }

// byRFC9112 reads all requests of in, which ends with the client's FIN.
func byRFC9112(in string) (all []refRequest) {
	in = latin1(in)
	for {
		r, rest, ok := refNext(in)
		if !ok {
			return all
		}
		if all = append(all, r); r.last || r.open {
			return all
		}
		in = rest
	}
}

// latin1 turns each byte into a character, so that the expressions match bytes.
func latin1(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

func bytesOf(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

// refLines removes the lines of a head from s, with their CRLF. whole is false if the head does not
// end, good is false if a line has a bare LF.
func refLines(s string) (lines []string, rest string, whole, good bool) {
	for {
		line, after, ok := strings.Cut(s, "\n")
		if !ok {
			return lines, s, false, true
		}
		if !strings.HasSuffix(line, "\r") {
			return lines, s, false, false
		}
		s = after
		line = strings.TrimSuffix(line, "\r")
		switch {
		case line != "":
			lines = append(lines, line)
		case len(lines) > 0:
			return lines, s, true, true
		}
	}
}

func refNext(in string) (r refRequest, rest string, ok bool) {
	lines, rest, whole, good := refLines(in)
	size := len([]rune(in)) - len([]rune(rest))
	switch {
	case !good && (size+len([]rune(strings.SplitAfter(rest, "\n")[0])) > refMaxHead || refTooMany(lines)):
		return refusal(400, 431), "", true
	case !good:
		return refusal(400), "", true
	case !whole && len([]rune(in)) >= refMaxHead, whole && size > refMaxHead:
		return refusal(431), "", true
	case !whole && len(lines) == 0 && strings.Trim(rest, "\r") == "" && len(rest) <= 1 && !strings.Contains(rest, "\r"):
		return r, "", false // no bytes, or empty lines
	case !whole && len(lines) == 0 && rest == "\r":
		return refRequest{open: true}, "", true
	case !whole:
		return refusal(400), "", true
	}
	head, ok := refHead(lines)
	if !ok {
		return refusal(400, 431), "", true
	}
	return head.request(rest)
}

// refTooMany reports whether the lines of a head may have too many fields, or too many options of
// Connection.
func refTooMany(lines []string) bool {
	options := 0
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "connection") {
			options += 1 + strings.Count(value, ",")
		}
	}
	return len(lines)-1 > 128 || options > 16
}

// refHeader is a well-formed head.
type refHeader struct {
	method, target string
	http10         bool
	length         int // -1: none
	chunked        bool
	expect         bool
	connection     []string
	odd            bool
}

func refHead(lines []string) (h refHeader, ok bool) {
	m := refLine.FindStringSubmatch(lines[0])
	if m == nil {
		odd := regexp.MustCompile(`^[^ ]+ [^ ]*[\x80-\xff][^ ]* HTTP/1\.[01]$`).MatchString(lines[0])
		return refHeader{odd: odd}, odd
	}
	h = refHeader{method: m[1], target: m[2], http10: m[3] == "0", length: -1}
	hosts := 0
	if len(lines)-1 > 128 {
		return h, false
	}
	for _, line := range lines[1:] {
		f := refField.FindStringSubmatch(line)
		if f == nil {
			return h, false
		}
		switch value := f[2]; strings.ToLower(f[1]) {
		case "host":
			hosts++
			h.odd = h.odd || !refHost.MatchString(value)
		case "content-length":
			n, err := strconv.ParseUint(value, 10, 63)
			if h.length >= 0 || err != nil || strings.Trim(value, "0123456789") != "" {
				return h, false
			}
			h.length = int(min(n, 1<<40))
		case "transfer-encoding":
			if h.chunked || h.http10 || !strings.EqualFold(value, "chunked") {
				return h, false
			}
			h.chunked = true
		case "expect":
			h.expect = h.expect || strings.EqualFold(value, "100-continue")
			h.odd = h.odd || !strings.EqualFold(value, "100-continue")
		case "connection":
			h.connection = append(h.connection, strings.ToLower(value))
			h.odd = h.odd || h.http10 && f[1] != "Connection" // fasthttp then closes the connection
		case "via":
			h.odd = true // a loop
		}
	}
	switch {
	case hosts > 1, hosts == 0 && !h.http10, h.chunked && h.length >= 0:
		return h, false
	}
	return h, true
}

func (h refHeader) request(rest string) (r refRequest, after string, ok bool) {
	r = refRequest{method: h.method}
	if h.odd || len(h.connection) > 1 || len(h.connection) == 1 && !slices.Contains([]string{"close", "keep-alive"}, h.connection[0]) {
		return refRequest{open: true}, "", true
	}
	r.last = h.http10 && !slices.Contains(h.connection, "keep-alive") || slices.Contains(h.connection, "close")
	target := h.target
	switch {
	case h.method == "OPTIONS" && target == "*":
	case refOdd.MatchString(target):
		return refRequest{open: true}, "", true
	case refURL.MatchString(target) && !refPlain.MatchString(target):
		return refRequest{open: true}, "", true
	case refURL.MatchString(target):
		target = target[strings.Index(target, "://")+3:]
		if at := strings.IndexAny(target, "/?"); at < 0 {
			target = "/"
		} else if target = target[at:]; target[0] == '?' {
			target = "/" + target
		}
	case !refPath.MatchString(target):
		return refusal(400), "", true
	}
	if h.method == "CONNECT" {
		return refusal(400), "", true
	}
	served := slices.Contains([]string{"GET", "HEAD", "POST"}, h.method)
	hasBody := h.chunked || h.length > 0
	if served && h.method != "POST" && hasBody {
		r = refusal(400)
		r.method = h.method
		return r, "", true
	}
	path, query, _ := strings.Cut(target, "?")
	switch {
	case !served:
		r.statuses = []int{405}
	case path != "/fill":
		r.statuses = []int{404}
	case h.length > refMaxBody:
		r.statuses, r.last = []int{413}, true
	}
	if h.expect && !h.http10 && hasBody && len(r.statuses) > 0 {
		r.last = true // the client may send its body, or not
		return r, "", true
	}
	if r.last && len(r.statuses) > 0 {
		return r, "", true
	}
	body, after, status := h.body(rest)
	switch {
	case len(r.statuses) > 0 && status == 0:
		return r, after, true
	case len(r.statuses) > 0:
		r.last = status == 400 // the start of the next request is not known
		r.open = status != 400 // the reader may skip it, or not
		return r, "", true
	case status != 0:
		r = refusal(status)
		if status == 413 {
			r = refusal(413, 400) // or it finds first that the body is malformed
		}
		return r, "", true
	}
	r.statuses, r.forwarded, r.body = []int{200}, true, bytesOf(body)
	if r.target = "/bid"; query != "" {
		r.target += "?" + query
	}
	return r, after, true
}

// body removes the body from s. status is that of its error, 0 for none.
func (h refHeader) body(s string) (body, rest string, status int) {
	runes := []rune(s)
	switch {
	case h.chunked:
		return refChunks(s)
	case h.length <= 0:
		return "", s, 0
	case len(runes) < h.length:
		return "", "", 400
	}
	return string(runes[:h.length]), string(runes[h.length:]), 0
}

func refChunks(s string) (body, rest string, status int) {
	for {
		line, after, ok := strings.Cut(s, "\r\n")
		m := refSize.FindStringSubmatch(line)
		if !ok || m == nil || len([]rune(line)) > 255 {
			return "", "", 400
		}
		size, err := strconv.ParseInt(m[1], 16, 63)
		if err != nil {
			return "", "", 400
		}
		s = after
		if size == 0 {
			break
		}
		if len([]rune(body))+int(min(size, refMaxBody+1)) > refMaxBody {
			return "", "", 413
		}
		runes := []rune(s)
		if len(runes) < int(size)+2 || runes[size] != '\r' || runes[size+1] != '\n' {
			return "", "", 400
		}
		body += string(runes[:size])
		s = string(runes[size+2:])
	}
	for n := 0; ; {
		line, after, ok := strings.Cut(s, "\r\n")
		if n += len([]rune(line)) + 2; !ok || n > refMaxHead {
			return "", "", 400
		}
		s = after
		if line == "" {
			return body, s, 0
		}
		if !regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\\t\\x20-\\x7e\\x80-\\xff]*$").MatchString(line) {
			return "", "", 400
		}
	}
}
