package fleet

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"adbuffer/internal/test/testsupport"
)

// canned is a connection that delivers these bytes, whatever is sent.
type canned struct {
	net.Conn
	r *bytes.Reader
}

func (c canned) Read(b []byte) (int, error)    { return c.r.Read(b) }
func (canned) Write(b []byte) (int, error)     { return len(b), nil }
func (canned) SetReadDeadline(time.Time) error { return nil }
func (canned) Close() error                    { return nil }

// parsed returns the reply that a call parses from text, or its error.
func parsed(text []byte) (leaseReply, leaseCall, error) {
	s := &session{replies: &replies{Conn: canned{r: bytes.NewReader(text)}}}
	s.Conn = redis.NewConn(s.replies, 0, 0)
	a := leaseCall{settings: settings{100, 10}, keep: 1, want: 6}
	got, errs, err := s.pipeline(context.Background(), []command{{"EVALSHA", nil}})
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return leaseReply{}, a, err
	}
	r, err := parseLeaseReply(got[0], &a)
	return r, a, err
}

func TestLeaseReplyIsParsed(t *testing.T) {
	r, _, err := parsed([]byte("*3\r\n:5\r\n$4\r\n33.3\r\n:3\r\n"))
	testsupport.True(t, err == nil && r == (leaseReply{granted: 5, share: 33.3, alive: 3}), "%+v, %v", r, err)
}

func TestImpossibleLeaseRepliesAreRefused(t *testing.T) {
	for _, text := range []string{
		"HTTP/1.1 400 Bad Request\r\n\r\n",
		"*999999999999\r\n",
		"*9223372036854775807\r\n",
		"$99999999999999999999\r\n",
		"*3\r\n:6\r\n$4\r\n33.3\r\n:3\r\n", // more than was asked for
		"*3\r\n:-1\r\n$4\r\n33.3\r\n:3\r\n",
		"*3\r\n:5\r\n$3\r\n101\r\n:3\r\n", // more than the limit
		"*3\r\n:5\r\n$3\r\nNaN\r\n:3\r\n",
		"*3\r\n:5\r\n$3\r\n1e9\r\n:3\r\n",
		"*3\r\n:5\r\n$2\r\n33\r\n:0\r\n",
		"*2\r\n:5\r\n$2\r\n33\r\n",
		"*3\r\n:5\r\n$2\r\n33\r\n:4611686018427387904\r\n", // 4 * alive overflows an int
		"*-1\r\n", "+OK\r\n", ":1\r\n", "", "\r\n", "-ERR no\r\n",
		strings.Repeat("*1\r\n", maxReplies/4+1),
	} {
		r, _, err := parsed([]byte(text))
		testsupport.True(t, err != nil, "%.40q is parsed as %+v", text, r)
	}
}

// redigo allocates an array when its size arrives. Without a check, 7 bytes of a reply allocate 160 KB,
// and a reply may hold a hundred thousand nested arrays.
func TestReplyAllocatesInProportionToItsBytes(t *testing.T) {
	const nested = 1000
	for _, size := range []string{"9", "99", "9999"} {
		text := []byte(strings.Repeat("*"+size+"\r\n", nested))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := parsed(text)
		runtime.ReadMemStats(&after)
		testsupport.True(t, err != nil, "arrays of %s are accepted", size)
		n := after.TotalAlloc - before.TotalAlloc
		testsupport.True(t, n <= 1<<20, "arrays of %s: %d bytes are allocated for %d", size, n, len(text))
	}
}

// For any bytes the result is an error, or a valid reply for a lease. The limits of
// replies bound the memory; otherwise the fuzzer would run out of it.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("*3\r\n:5\r\n$4\r\n33.3\r\n:3\r\n"))
	f.Add([]byte("-NOSCRIPT No matching script\r\n"))
	f.Add([]byte("*3\r\n*9999\r\n$9999\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, a, err := parsed(text)
		if err == nil && (r.granted < 0 || r.granted > a.want-a.keep || !(r.share >= 0 && r.share <= 100.1) || r.alive < 1 || r.alive > maxReplicas) {
			t.Errorf("%q: %+v", text, r)
		}
	})
}
