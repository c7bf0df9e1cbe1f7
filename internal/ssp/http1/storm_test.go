package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// storm is a peer that responds to each request with the request's own target, in many ways and at
// many speeds. It also closes connections in the ways of real peers.
type storm struct {
	r *rand.Rand
	// unsolicited lets the peer send unsolicited responses. On a pipelined connection with
	// outstanding requests adbuffer could not detect them.
	unsolicited bool
}

// serve responds to the requests on c until the response to one of them ends the connection.
func (s *storm) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		method, target, _ := strings.Cut(line, " ")
		target, _, _ = strings.Cut(target, " ")
		for {
			if line, err = in.ReadString('\n'); err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
		}
		body := target + strings.Repeat("."+target, s.r.IntN(200))
		if method == "HEAD" {
			body = ""
		}
		last, out := false, ""
		kind := s.r.IntN(60)
		if kind == 5 && !s.unsolicited {
			kind = 4
		}
		switch kind {
		case 0:
			last, out = true, fmt.Sprintf("HTTP/1.1 200 OK\r\nConnection: close\r\nX-Target: %s\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
		case 1:
			last, out = true, fmt.Sprintf("HTTP/1.0 200 OK\r\nX-Target: %s\r\n\r\n%s", target, body)
		case 2:
			return
		case 3:
			last, out = true, fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Target: %s\r\nContent-Length: %d\r\n\r\n%s", target, len(body)+1, body)
		case 4:
			time.Sleep(time.Duration(s.r.IntN(10)) * time.Millisecond)
			out = fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Target: %s\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
		case 5:
			out = fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Target: %s\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nX-Target: evil\r\n\r\n", target, len(body), body)
		case 6, 7, 8, 9, 10:
			out = fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Target: %s\r\nTransfer-Encoding: chunked\r\n\r\n", target)
			if method != "HEAD" {
				half := len(body) / 2
				out += fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", half, body[:half], len(body)-half, body[half:])
				if half == 0 {
					last, out = true, out[:len(out)-5]
				}
			}
		default:
			out = fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Target: %s\r\nContent-Length: %d\r\n\r\n%s", target, len(body), body)
		}
		for len(out) > 0 {
			n := len(out)
			if s.r.IntN(3) == 0 {
				n = 1 + s.r.IntN(n)
			}
			if s.r.IntN(20) == 0 {
				time.Sleep(time.Duration(s.r.IntN(300)) * time.Microsecond)
			}
			if _, err := io.WriteString(c, out[:n]); err != nil {
				return
			}
			out = out[n:]
		}
		if last {
			return
		}
	}
}

// place is a connection that the storm's callers share.
type place struct {
	conn  exchange.Conn
	inUse atomic.Int32
	freed *atomic.Int64
}

func (p *place) Freed(held time.Duration, _ exchange.Ticket) {
	if held < 0 || p.inUse.Add(-1) < 0 {
		panic("a place was freed that was not in use")
	}
	p.freed.Add(1)
}

func (p *place) Changed() {}

// This is the most important guarantee. Callers with short deadlines, some of which cancel early,
// share connections to a peer. It responds in every way: late, in pieces, and sometimes not at all.
// A caller gets only the response to its own request. Each place is released exactly once, and
// every caller returns.
func TestNoResponseEverReachesAnotherRequest(t *testing.T) {
	for _, tr := range transports {
		for _, k := range kinds {
			t.Run(fmt.Sprint(tr, "/", k), func(t *testing.T) {
				opts := testOptions()
				opts.Linger = 2 * time.Millisecond
				var freed, done, responded, failed atomic.Int64
				var peers sync.WaitGroup
				var mu sync.Mutex
				var places []*place
				lend := func() *place {
					mu.Lock()
					defer mu.Unlock()
					for i, p := range places {
						switch {
						case p.conn.CloseReason() != exchange.NotClosed:
							places[i] = places[len(places)-1]
							places = places[:len(places)-1]
							return nil // check again
						case int(p.inUse.Load()) >= p.conn.Places():
						case p.inUse.Load() == 0 && !p.conn.Idle():
							return nil
						default:
							p.inUse.Add(1)
							return p
						}
					}
					c, sock, peer := connect(t, tr)
					p := &place{freed: &freed}
					p.conn = k.open(c, sock, p, opts)
					s := &storm{r: rand.New(rand.NewPCG(uint64(len(places)), uint64(done.Load()))), unsolicited: k == exclusive}
					peers.Go(func() { s.serve(peer.conn) })
					p.inUse.Add(1)
					places = append(places, p)
					return p
				}
				const callers, each = 16, 40
				var wg sync.WaitGroup
				for caller := range callers {
					wg.Go(func() {
						r := rand.New(rand.NewPCG(uint64(caller), 3))
						for i := range each {
							var p *place
							for p == nil {
								p = lend()
							}
							target := fmt.Sprintf("/%d-%d", caller, i)
							ex := get(t, target[1:])
							if r.IntN(8) == 0 {
								ex.Request.Method = exchange.HEAD
							}
							ex.Deadline = time.Now().Add(patience)
							if r.IntN(4) == 0 {
								ex.Deadline = time.Now().Add(time.Duration(r.IntN(3000)) * time.Microsecond)
							}
							ex.UsualTimeout = time.Duration(r.IntN(3000)) * time.Microsecond
							if r.IntN(4) == 0 {
								ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(3000))*time.Microsecond)
								defer cancel()
								ex.Context = ctx
							}
							err := p.conn.Do(ex)
							done.Add(1)
							if err != nil {
								var e *exchange.Error
								testsupport.True(t, errors.As(err, &e), "error %v of type %T", err, err)
								failed.Add(1)
								continue
							}
							responded.Add(1)
							body := string(ex.Response.Body)
							if !strings.Contains(string(ex.Response.Fields), "X-Target: "+target+"\r\n") ||
								strings.ReplaceAll(strings.TrimPrefix(body, target), "."+target, "") != "" {
								t.Errorf("the response to %s is %q %.100q", target, ex.Response.Fields, body)
							}
						}
					})
				}
				wg.Wait()
				testsupport.Eventually(t, "all places are freed", func() bool { return freed.Load() == done.Load() })
				mu.Lock()
				for _, p := range places {
					p.conn.Close(exchange.ClosedDrain)
				}
				mu.Unlock()
				peers.Wait()
				testsupport.MustTrue(t, responded.Load() != 0 && failed.Load() != 0, "%d with a response, %d failed: the test needs both", responded.Load(), failed.Load())
				t.Logf("%d with a response, %d failed", responded.Load(), failed.Load())
			})
		}
	}
}
