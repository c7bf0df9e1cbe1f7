package http1

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// exchangeOnce runs one exchange on conn, which must succeed, and returns it.
func exchangeOnce(tb testing.TB, conn exchange.Conn, p *peer, name string) *exchange.Exchange {
	tb.Helper()
	ex := get(tb, name)
	done := start(conn, ex)
	p.wantRequests(name)
	p.send(textResponse(name))
	wantResponse(tb, wait(tb, done), ex, 200, name)
	return ex
}

func TestRequestIsWrittenAsItIs(t *testing.T) {
	for name, c := range map[string]struct {
		method exchange.Method
		body   string
		want   string
	}{
		"GET":              {exchange.GET, "", "GET /bid?slot=top HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\n\r\n"},
		"GET with a body":  {exchange.GET, "ab", "GET /bid?slot=top HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\nContent-Length: 2\r\n\r\nab"},
		"HEAD":             {exchange.HEAD, "", "HEAD /bid?slot=top HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\n\r\n"},
		"POST":             {exchange.POST, "{}", "POST /bid?slot=top HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\nContent-Length: 2\r\n\r\n{}"},
		"POST of nothing":  {exchange.POST, "", "POST /bid?slot=top HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\nContent-Length: 0\r\n\r\n"},
		"POST, two writes": {exchange.POST, strings.Repeat("x", 2*maxJoined), "POST /bid?slot=top HTTP/1.1\r\nHost: ssp.example\r\nAccept: */*\r\nContent-Length: 131072\r\n\r\n" + strings.Repeat("x", 2*maxJoined)},
	} {
		for _, tr := range transports {
			t.Run(name+"/"+tr.String(), func(t *testing.T) {
				conn, p, owner := dial(t, tr, testOptions())
				for round := range 2 {
					ex := newExchange(t)
					ex.Request.Method, ex.Request.Body = c.method, []byte(c.body)
					done := start(conn, ex)
					testsupport.MustEqual(t, p.request(), c.want, "the peer read %.200q")
					p.send("HTTP/1.1 204 No Content\r\n\r\n")
					wantResponse(t, wait(t, done), ex, 204, "")
					if ex.Protocol != exchange.HTTP1 || ex.Reused != (round > 0) || ex.Served != round {
						t.Fatalf("protocol %v, reused %v, served %d in round %d", ex.Protocol, ex.Reused, ex.Served, round)
					}
				}
				owner.awaitFreed(t, 2)
				wantReason(t, conn, exchange.NotClosed)
			})
		}
	}
}

// A response whose framing is ambiguous closes the connection, over TLS as in cleartext. goodResponses has
// more of them.
func TestConnectionIsReusedOnlyAfterUnambiguousFraming(t *testing.T) {
	for name, c := range map[string]struct {
		response, body string
		eof            bool // the peer closes after the response
		reason         exchange.CloseReason
	}{
		"fixed":             {response: textResponse("ok"), body: "ok"},
		"chunked":           {response: chunkedHead + "2\r\nok\r\n0\r\n\r\n", body: "ok"},
		"interim":           {response: "HTTP/1.1 103 x\r\nLink: y\r\n\r\n" + textResponse("ok"), body: "ok"},
		"connection close":  {response: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", body: "ok", reason: exchange.ClosedByPeer},
		"HTTP/1.0":          {response: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", body: "ok", reason: exchange.ClosedByPeer},
		"read to EOF":       {response: "HTTP/1.1 200 OK\r\n\r\nok", body: "ok", eof: true, reason: exchange.ClosedByPeer},
		"length and coding": {response: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", body: "ok", reason: exchange.ClosedError},
		"bare LF":           {response: "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", body: "ok", reason: exchange.ClosedError},
		"leftover":          {response: textResponse("ok") + "x", body: "ok", reason: exchange.ClosedLeftover},
	} {
		for _, tr := range transports {
			t.Run(name+"/"+tr.String(), func(t *testing.T) {
				conn, p, owner := dial(t, tr, testOptions())
				ex, done := ask(t, conn, p)
				p.sendTogether(c.response)
				if c.eof {
					p.close()
				}
				wantResponse(t, wait(t, done), ex, 200, c.body)
				owner.awaitFreed(t, 1)
				wantReason(t, conn, c.reason)
				testsupport.MustEqual(t, conn.Idle(), (c.reason == exchange.NotClosed), "Idle %v")
				if c.reason == exchange.NotClosed {
					exchangeOnce(t, conn, p, "next")
				} else if !c.eof {
					p.wantClosed()
				}
			})
		}
	}
}

func TestBrokenResponsesFailTheExchangeAndCloseTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		response string
		eof      bool
		outcome  exchange.Outcome
	}{
		"status line":  {"HTTP/1.1 2xx OK\r\n", false, exchange.BadResponse},
		"101":          {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", false, exchange.BadResponse},
		"bad chunk":    {chunkedHead + "x\r\n", false, exchange.BadResponse},
		"large head":   {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 16<<10), false, exchange.ResponseTooLarge},
		"large body":   {"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n", false, exchange.ResponseTooLarge},
		"large chunk":  {chunkedHead + "100001\r\n", false, exchange.ResponseTooLarge},
		"half head":    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n", true, exchange.ConnLost},
		"half body":    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx", true, exchange.ConnLost},
		"only interim": {"HTTP/1.1 100 Continue\r\n\r\n", true, exchange.ConnLost},
	} {
		for _, tr := range transports {
			for _, k := range kinds {
				t.Run(fmt.Sprint(name, "/", tr, "/", k), func(t *testing.T) {
					conn, p, owner := k.dial(t, tr, testOptions())
					exchangeOnce(t, conn, p, "first") // so that the close could be the keep-alive race
					done, freed := start(conn, newExchange(t)), 2
					p.request()
					var behind <-chan error
					if k == pipelined {
						behind, freed = start(conn, newExchange(t)), 3
						p.request()
					}
					p.send(c.response)
					if c.eof {
						p.close()
					}
					wantError(t, wait(t, done), c.outcome, exchange.MaybeProcessed, false)
					if behind != nil { // no byte of its response has arrived
						wantError(t, wait(t, behind), exchange.ConnLost, exchange.MaybeProcessed, true)
					}
					owner.awaitFreed(t, freed)
					wantReason(t, conn, exchange.ClosedError)
				})
			}
		}
	}
}

// In the keep-alive race, the peer closes while a request is under way. On a new connection a close
// is not the keep-alive race.
func TestCloseBeforeTheFirstByteIsStaleOnlyOnAReusedConnection(t *testing.T) {
	for name, end := range map[string]func(*peer){"FIN": (*peer).close, "RST": (*peer).reset} {
		for _, tr := range transports {
			for _, reused := range []bool{false, true} {
				t.Run(name+"/"+tr.String(), func(t *testing.T) {
					conn, p, owner := dial(t, tr, testOptions())
					freed := 1
					if reused {
						exchangeOnce(t, conn, p, "first")
						freed++
					}
					done := start(conn, newExchange(t))
					p.request()
					end(p)
					wantError(t, wait(t, done), exchange.ConnLost, exchange.MaybeProcessed, reused)
					owner.awaitFreed(t, freed)
					wantReason(t, conn, exchange.ClosedError)
				})
			}
		}
	}
}

// An SSP may respond, and close, before it has read the whole request. RFC 9112, section 9.5.
func TestResponseBeforeTheEndOfTheRequestIsDelivered(t *testing.T) {
	const head = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\n\r\n"
	for _, tr := range transports {
		for _, sent := range []string{"", head + "la", head + "large", head + "largeX"} {
			t.Run(fmt.Sprint(tr, len(sent)), func(t *testing.T) {
				conn, p, owner := dial(t, tr, testOptions())
				exchangeOnce(t, conn, p, "first") // so that the close could be the keep-alive race
				ex := newExchange(t)
				ex.Request.Method, ex.Request.Body = exchange.POST, make([]byte, 32<<20) // more than the buffers
				done := start(conn, ex)
				p.conn.SetReadDeadline(time.Now().Add(patience))
				for line := ""; line != "\r\n"; {
					var err error
					if line, err = p.in.ReadString('\n'); err != nil {
						t.Fatal(err)
					}
				}
				p.send(sent)
				p.reset()
				err := wait(t, done)
				switch sent {
				case "":
					wantError(t, err, exchange.ConnLost, exchange.MaybeProcessed, true)
				case head + "la":
					wantError(t, err, exchange.ConnLost, exchange.MaybeProcessed, false)
				default:
					wantResponse(t, err, ex, 413, "large")
				}
				owner.awaitFreed(t, 2)
				testsupport.Equal(t, conn.Places(), 0, "a connection with half a request written is reused: %v")
			})
		}
	}
}

// A failed write of nothing proves that the request was not sent. It is stale only on a reused
// connection.
func TestFailedWrites(t *testing.T) {
	for _, c := range []struct {
		after    int64 // bytes that are written
		body     int   // a large one is a write of its own
		reused   bool
		progress exchange.Progress
	}{
		{0, 0, true, exchange.NotSent},
		{1, 0, true, exchange.MaybeProcessed},
		{1, maxJoined + 1, true, exchange.MaybeProcessed},
		{1, maxJoined + 1, false, exchange.MaybeProcessed},
	} {
		client, sock, p := connect(t, plain)
		writes := &failingWrites{Conn: client}
		writes.after.Store(-1)
		owner := newRecorder()
		conn := New(writes, sock, owner, testOptions())
		freed := 1
		if c.reused {
			exchangeOnce(t, conn, p, "first")
			freed++
		}
		writes.after.Store(c.after)
		ex := newExchange(t)
		ex.Request.Body = make([]byte, c.body)
		wantError(t, conn.Do(ex), exchange.ConnLost, c.progress, c.reused)
		owner.awaitFreed(t, freed)
		wantReason(t, conn, exchange.ClosedError)
	}
}

func TestResponseOverTheBudgetIsRefusedAndReleasesItsBytes(t *testing.T) {
	budget := exchange.NewBudget(1000)
	for body, fits := range map[string]bool{strings.Repeat("x", 1000): true, strings.Repeat("x", 1001): false} {
		for _, large := range []string{textResponse(body), chunkedHead + "3e8\r\n" + body[:1000] + "\r\n" + map[bool]string{true: "0\r\n\r\n", false: "1\r\nx\r\n0\r\n\r\n"}[fits]} {
			conn, p, owner := dial(t, plain, testOptions())
			ex := newExchange(t)
			ex.Budget = budget
			done := start(conn, ex)
			p.request()
			p.send(large)
			err := wait(t, done)
			owner.awaitFreed(t, 1)
			if fits {
				wantResponse(t, err, ex, 200, body)
				testsupport.MustEqual(t, budget.Used(), 1000, "%d bytes taken")
			} else {
				wantError(t, err, exchange.Overloaded, exchange.MaybeProcessed, false)
			}
			ex.ReleaseBody()
			testsupport.MustEqual(t, budget.Used(), 0, "%d bytes are still taken")
		}
	}
}

func TestCloseFailsCurrentExchanges(t *testing.T) {
	for _, tr := range transports {
		for n, k := range kinds {
			conn, p, owner := k.dial(t, tr, testOptions())
			exchangeOnce(t, conn, p, "first") // so that a close by the peer could be the keep-alive race
			var all []<-chan error
			for range 1 + n { // the pipelined connection carries two
				all = append(all, start(conn, newExchange(t)))
				p.request()
			}
			conn.Close(exchange.ClosedDrain)
			conn.Close(exchange.ClosedIdle)
			for _, done := range all {
				wantError(t, wait(t, done), exchange.ConnLost, exchange.MaybeProcessed, false)
			}
			owner.awaitFreed(t, 2+n)
			wantReason(t, conn, exchange.ClosedDrain)
			_, changed := owner.counts()
			testsupport.MustEqual(t, changed, 0, "Changed was called %d times")
		}
	}
}

// A context that ends just when the response arrives must not affect the next exchange.
func TestCancellationDoesNotReachTheNextExchange(t *testing.T) {
	for _, tr := range transports {
		for _, k := range kinds {
			conn, p, owner := k.dial(t, tr, testOptions())
			for round := range 100 {
				ctx, cancel := context.WithCancel(context.Background())
				ex := get(t, "x")
				ex.Context = ctx
				done := start(conn, ex)
				p.wantRequests("x")
				switch round % 10 {
				case 0: // the response comes first
					p.send(textResponse("x"))
					wantResponse(t, wait(t, done), ex, 200, "x")
				case 1: // the context ends first
					cancel()
					wantError(t, wait(t, done), exchange.Cancelled, exchange.MaybeProcessed, false)
					p.send(textResponse("x"))
				default:
					go func() {
						time.Sleep(time.Duration(round%10-2) * 10 * time.Microsecond)
						cancel()
					}()
					p.send(textResponse("x"))
					if err := wait(t, done); err != exchange.ErrCancelled {
						wantResponse(t, err, ex, 200, "x")
					}
				}
				owner.awaitFreed(t, 2*round+1)
				testsupport.MustTrue(t, conn.Idle(), "the connection was closed: %v", conn.CloseReason())
				exchangeOnce(t, conn, p, "next")
				owner.awaitFreed(t, 2*round+2)
				cancel()
			}
			conn.Close(exchange.ClosedDrain)
		}
	}
}
