package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"adbuffer/internal/test/sspsim"
)

// response is a response as a client received it.
type response struct {
	status int
	header http.Header
	body   []byte
	closes bool          // the connection ends after the response
	took   time.Duration // since the request's last byte or the previous response, whichever was later
}

func (p *response) String() string {
	return fmt.Sprintf("%d, %s, %s: %s", p.status, p.header.Get("X-Adbuffer-Source"), p.header.Get("Content-Type"), shorten(p.body))
}

// ownStatus is the status of each response of adbuffer's own that a correct request may get, by
// its reason.
var ownStatus = map[string]int{
	"connect_failed": 502, "tls_failed": 502, "conn_lost": 502, "bad_response": 502, "response_too_large": 502,
	"pending_full": 503, "pending_timeout": 503, "breaker_open": 503, "ssp_backoff": 503,
	"deadline": 504, "local_error": 503, "qps_limit": 503, "shaped": 204,
}

// refusals are the statuses with which adbuffer may refuse a broken request.
var refusals = map[int]bool{400: true, 405: true, 408: true, 413: true, 431: true}

// maxPaused is the longest sum of a client's pauses in one request.
const maxPaused = time.Second

// judge compares a response with the expected outcome of its request. stalled is the measured time for
// which the machine held up the request. paused is the time for which the client itself paused.
func (r *run) judge(a *request, p *response, stalled, paused time.Duration) {
	source := p.header.Get("X-Adbuffer-Source")
	ssp, bySSP := strings.CutPrefix(source, "ssp/")
	r.tally.add(fmt.Sprintf("%d %s", p.status, source), "")
	if a.broken != "" {
		if bySSP || !refusals[p.status] {
			r.broken.add(refused, "a request with %s was not refused: %v", a.broken, p)
		}
		return
	}
	switch over := p.took - paused - a.deadline; {
	case over-stalled > allowance:
		r.broken.add(late, "the response to %v came after %v, in %v of which the machine stood still: %v", a, p.took.Round(time.Millisecond), stalled.Round(time.Millisecond), p)
	case over > allowance:
		r.excuse(late, a, stalled)
	default:
		r.overrun.observe(over)
	}
	switch {
	case r.options.overload && source == "proxy/overloaded" && p.status == 503:
		return // no promise limits how many requests are refused
	case bySSP:
		if err := r.belongs(a, p); err != nil {
			r.broken.add(mixed, "%v: %v: %v, %v", a, err, p, p.header)
		}
		if p.status == 200 || p.status == 204 {
			a.st.responses.add(ssp, time.Now())
		}
	case source == "proxy/merged":
		if err := r.merged(a, p); err != nil {
			r.broken.add(mixed, "%v: %v: %v", a, err, p)
		}
	case p.status == 408 && stalled > readTimeout-maxPaused:
		r.excuse(refused, a, stalled) // the machine stood still while the client sent the request
	default:
		reason := strings.TrimPrefix(source, "proxy/")
		if ownStatus[reason] != p.status || reason == "qps_limit" && !r.hasLimit(a) || reason == "shaped" && !r.mayBeShaped(a) {
			r.broken.add(refused, "%v: %v", a, p)
		}
	}
	if a.outage != 0 && stalled < a.deadline/2 {
		r.group.judge(a, p)
	}
	// Without descriptors no dial succeeds, and requests may wait for one.
	undialled := source == "proxy/local_error" || source == "proxy/pending_timeout"
	if a.healthy != "" && (!undialled || !a.st.starved()) {
		r.healthy.sent.Add(1)
		switch {
		case ssp == a.healthy && (p.status == 200 || p.status == 204):
			r.healthy.succeeded.Add(1)
			if ssp == "calm1" {
				a.st.resolved.Store(true)
			}
		case stalled > a.deadline/2:
			r.excuse(spared, a, stalled) // the machine took half of the time that the request had
		default:
			r.say("a request to a healthy SSP failed: %v: %v", a, p)
		}
	}
}

// hasLimit reports whether an SSP that a may go to has a limit.
func (r *run) hasLimit(a *request) bool {
	return a.fansOut || a.path == "/split" || slices.ContainsFunc(r.ssps, func(s *ssp) bool { return s.shaped && a.path == "/single/"+s.name })
}

// mayBeShaped reports whether a may have been dropped by the limit of the only SSP that it was for: that SSP has a limit,
// and no SSP has received a.
func (r *run) mayBeShaped(a *request) bool {
	received := false
	for i := range r.ssps {
		received = received || r.log.received(a.token, i)
	}
	return r.hasLimit(a) && !a.fansOut && a.method != "HEAD" && !received
}

// belongs returns why a response of an SSP cannot be the response to a.
func (r *run) belongs(a *request, p *response) error {
	if bytes.Contains(p.body, []byte(sspsim.Poison)) {
		return errors.New("a response to no request")
	}
	token := strconv.FormatUint(a.token, 10)
	got := p.header.Get("X-Echo-Cb")
	if got == "" && p.status == 204 && a.fansOut {
		return nil // no SSP sent a bid, so the response has no SSP's fields
	}
	if got != token {
		return fmt.Errorf("a response to request %q", got)
	}
	if a.method == "HEAD" || p.status != 200 || len(p.body) == 0 {
		return nil
	}
	return wholeBody(p.header.Get("Content-Type"), token, p.body)
}

// wholeBody returns why a body is not the whole body that sspsim made for the request with this
// token.
func wholeBody(contentType, token string, body []byte) error {
	switch contentType {
	case "application/json":
		if !json.Valid(body) || !bytes.HasPrefix(body, []byte(`{"id":"`+token+`"`)) {
			return errors.New("another request's JSON, or a part of it")
		}
	case "application/xml":
		noAd := bytes.HasSuffix(body, []byte(`<VAST version="4.2"></VAST>`))
		if !noAd && !bytes.Contains(body, []byte(`<Ad id="`+token+`"`)) || !bytes.HasSuffix(body, []byte("</VAST>")) {
			return errors.New("another request's VAST, or a part of it")
		}
	case "application/octet-stream":
		// The body may be shorter than the token.
		start := token[:min(len(token), len(body))]
		if rest, ok := bytes.CutPrefix(body, []byte(start)); !ok || len(bytes.Trim(rest, "x")) > 0 {
			return errors.New("another request's bytes")
		}
	default:
		return fmt.Errorf("the type %q, which no SSP sends", contentType)
	}
	return nil
}

// merged returns why an envelope of parallel-all cannot be the response to a.
func (r *run) merged(a *request, p *response) error {
	var envelope struct {
		Results []struct {
			SSP         string          `json:"ssp"`
			Status      int             `json:"status"`
			Error       string          `json:"error"`
			ContentType string          `json:"content_type"`
			Body        json.RawMessage `json:"body"`
			Base64      []byte          `json:"body_base64"`
		} `json:"results"`
	}
	if err := json.Unmarshal(p.body, &envelope); err != nil {
		return err
	}
	if p.status != 200 || len(envelope.Results) != len(r.mixed()) {
		return fmt.Errorf("%d results for %d SSPs", len(envelope.Results), len(r.mixed()))
	}
	token := strconv.FormatUint(a.token, 10)
	for i, res := range envelope.Results {
		if res.SSP != r.ssps[i].name {
			return fmt.Errorf("result %d is of %s, not of %s", i, res.SSP, r.ssps[i].name)
		}
		if res.Status != 200 {
			limited := res.Error == "shaped" || res.Error == "qps_limit"
			if res.Status == 0 && (ownStatus[res.Error] == 0 || limited && !r.ssps[i].shaped) {
				return fmt.Errorf("the result of %s is %q", res.SSP, res.Error)
			}
			if res.Error == "shaped" && r.log.received(a.token, i) {
				return fmt.Errorf("%s received a request that its limit dropped", res.SSP)
			}
			continue
		}
		body := []byte(res.Body)
		var text string
		if json.Unmarshal(body, &text) == nil {
			body = []byte(text)
		}
		if len(res.Base64) > 0 {
			body = res.Base64
		}
		if len(body) == 0 {
			continue
		}
		if err := wholeBody(res.ContentType, token, body); err != nil {
			return fmt.Errorf("%s: %w", res.SSP, err)
		}
	}
	return nil
}

// noResponse judges a request whose connection ended before the first byte of its response. before is
// how many requests the client had already sent on the connection. At the end of the run,
// checkUnanswered checks that no SSP received the request.
func (r *run) noResponse(a *request, before int, err error) {
	if a.broken != "" {
		r.tally.add("closed, refused", "")
		return
	}
	r.tally.add("closed, unread: "+reason(err), "")
	if before == 0 {
		r.newConnectionEnded(a.st, a, "%v: the new connection ended: %v", a, err)
	}
	r.log.mu.Lock()
	r.log.unanswered = append(r.log.unanswered, unanswered{a, before, err})
	r.log.mu.Unlock()
}

// reason returns the text of an error without the parts that differ between connections.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	text, _, _ := strings.Cut(err.Error(), "; ")
	return text
}

func (r *run) checkUnanswered() {
	for _, a := range r.log.unanswered {
		for i, s := range r.ssps {
			if r.log.received(a.token, i) {
				r.broken.add(lost, "SSP %s received %v, and the client's connection ended without a response, after %d earlier requests: %v", s.name, a.request, a.before, a.err)
			}
		}
	}
}
