package chaos

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/test/sspsim"
)

// requestLog records which SSP received which request. The query of a request carries its token, a
// number that no other request has. Each SSP checks its requests against the log.
type requestLog struct {
	issued atomic.Uint64
	broken *brokenPromises

	mu         sync.Mutex // guards the fields below
	seen       []uint16   // by token: a bit for each SSP that received the request
	refused    map[refusal]int
	last       []recent // by SSP: how the last requests arrived
	unanswered []unanswered
}

// refusal is a request that an SSP did not process.
type refusal struct {
	ssp   int
	token string
}

// recent says how the last requests arrived at an SSP, by their token modulo the length of recent. It explains
// broken promises.
type recent [4096]string

func newRequestLog(ssps int, b *brokenPromises) *requestLog {
	return &requestLog{broken: b, last: make([]recent, ssps), refused: map[refusal]int{}}
}

// token returns a number that no other request has.
func (l *requestLog) token() uint64 { return l.issued.Add(1) }

// received reports whether an SSP received the request.
func (l *requestLog) received(token uint64, ssp int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return token < uint64(len(l.seen)) && l.seen[token]&(1<<ssp) != 0
}

// maxSendings is how often a request that an SSP does not process may be sent: once, and retry.max + 1
// times again.
const maxSendings = 3

// refuse counts a request that an SSP did not process.
func (l *requestLog) refuse(ssp int, name, behaviour, target string) {
	_, query, _ := strings.Cut(target, "?cb=")
	token, _, _ := strings.Cut(query, "&")
	l.mu.Lock()
	l.refused[refusal{ssp, token}]++
	n := l.refused[refusal{ssp, token}]
	l.mu.Unlock()
	if n == maxSendings+1 {
		l.broken.add(sentFew, "request %s was sent %d times to SSP %s, when it %s", token, n, name, behaviour)
	}
}

// unanswered is a request that got no response, with the number of requests before it on its connection
// and the error of the connection.
type unanswered struct {
	*request
	before int
	err    error
}

// receive checks a request that an SSP with this behaviour has read whole and will process next.
func (l *requestLog) receive(ssp int, name, behaviour string, q *sspsim.Request) {
	token, err := l.check(q)
	if err != nil {
		l.broken.add(altered, "SSP %s received a request that no client sent in this form: %v: %s %s", name, err, q.Method, shorten(q.Target))
		return
	}
	how := fmt.Sprintf("at %s on its connection %d, stream %d, when it %s", time.Now().Format("15:04:05.000"), q.Conn, q.Stream, behaviour)
	l.mu.Lock()
	l.seen = append(l.seen, make([]uint16, max(0, int(token)+1-len(l.seen)))...)
	again := l.seen[token]&(1<<ssp) != 0
	l.seen[token] |= 1 << ssp
	before := &l.last[ssp][token%uint64(len(recent{}))]
	first := *before
	*before = how
	l.mu.Unlock()
	if again && q.Method == "POST" {
		l.broken.add(twice, "SSP %s processed POST %d twice: %s; %s", name, token, first, how)
	}
}

// check compares a request with the description in its query. The query also names the status of the
// response that a client provokes.
func (l *requestLog) check(q *sspsim.Request) (token uint64, err error) {
	query, ok := strings.CutPrefix(q.Target, "/bid?")
	if !ok {
		return 0, fmt.Errorf("the path is not /bid")
	}
	v, err := url.ParseQuery(query)
	if err != nil {
		return 0, err
	}
	token, err = strconv.ParseUint(v.Get("cb"), 10, 64)
	if err != nil || token == 0 || token > l.issued.Load() {
		return 0, fmt.Errorf("cb %q was not issued", v.Get("cb"))
	}
	if code, err := strconv.Atoi(v.Get("status")); err == nil {
		q.Respond.Code = code
		if code == http.StatusServiceUnavailable {
			q.Respond.RetryAfter = sspsim.Duration(30 * time.Second)
		}
	}
	length, err := strconv.Atoi(v.Get("len"))
	switch {
	case err != nil:
		return 0, err
	case v.Get("refuse") != "":
		return 0, fmt.Errorf("it had to be refused: %s", v.Get("refuse"))
	case q.Method != v.Get("m"):
		return 0, fmt.Errorf("the method was %s", v.Get("m"))
	case len(q.Body) != length:
		return 0, fmt.Errorf("the body has %d bytes and not %d", len(q.Body), length)
	case length > 0 && !bytes.Equal(q.Body, requestBody(token, length)):
		return 0, fmt.Errorf("the body is not the client's")
	}
	return token, nil
}

// requestBody returns the body of the POST with this token: an OpenRTB request of this length, whose
// padding depends on the token.
func requestBody(token uint64, length int) []byte {
	b := fmt.Appendf(nil, `{"id":"%d","imp":[{"id":"1"}],"ext":{"pad":"`, token)
	const end = `"}}`
	for len(b)+len(end) < length {
		b = append(b, 'a'+byte((token+uint64(len(b))/64)%26))
	}
	return append(b, end...)
}

func shorten[T string | []byte](s T) string {
	const maxBytes = 160
	if len(s) > maxBytes {
		return fmt.Sprintf("%.*s… (%d bytes)", maxBytes, s, len(s))
	}
	return string(s)
}
