package http1

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// Only `Connection: close` states that later requests were not processed: they are retried
// elsewhere at once. A response of HTTP/1.0 and a response without a length state nothing, so POSTs
// behind them must not be sent twice. In all cases the later requests fail even if the response is
// incomplete.
func TestOnlyConnectionCloseProvesThatLaterRequestsWereNotProcessed(t *testing.T) {
	cases := map[string]struct {
		head, body string
		proves     bool
	}{
		"connection close":   {"HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 2\r\n\r\nA", "B", true},
		"chunked":            {"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nA", "\r\n1\r\nB\r\n0\r\n\r\n", true},
		"http/1.0 and close": {"HTTP/1.0 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nA", "B", true},
		"no end and close":   {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nA", "B", true},
		"http/1.0":           {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nA", "B", false},
		"http/1.0, kept":     {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nA", "B", false},
		"read to EOF":        {"HTTP/1.1 200 OK\r\n\r\nA", "B", false},
	}
	for name, c := range cases {
		for _, tr := range transports {
			t.Run(name+"/"+tr.String(), func(t *testing.T) {
				conn, p, owner := dialProven(t, tr, testOptions())
				f := send(t, conn, p, "a", "b", "c")
				p.send(c.head)
				progress, stale := exchange.NotProcessed, false
				if !c.proves {
					progress, stale = exchange.MaybeProcessed, true
				}
				f.wantError(1, exchange.ConnLost, progress, stale)
				f.wantError(2, exchange.ConnLost, progress, stale)
				wantReason(t, conn, exchange.ClosedByPeer)
				refused := conn.Do(get(t, "d"))
				wantError(t, refused, exchange.ConnLost, exchange.NotProcessed, false)
				testsupport.MustTrue(t, exchange.AsError(refused).Unsent, "a request that came after the close counts as sent: %+v", refused)
				p.send(c.body)
				p.close()
				f.wantResponse(0, "AB")
				owner.awaitFreed(t, 5)
				_, changed := owner.counts()
				testsupport.MustEqual(t, changed, 1, "Changed was called %d times")
			})
		}
	}
}

// No response precedes the close of a new connection: the request is a first attempt that retry.max counts.
func TestRequestOnANewPipelineThatTheSSPClosedWasNotSent(t *testing.T) {
	conn, p, owner := dialPipelined(t, plain, testOptions(), nil)
	p.close()
	owner.await(t, "the close", func(_, changed int) bool { return changed == 1 })
	first := get(t, "first")
	err := conn.Do(first)
	wantError(t, err, exchange.ConnLost, exchange.NotSent, false)
	testsupport.True(t, !first.Reused && !exchange.AsError(err).Collateral, "the connection counts as used: %+v", err)
}

// A server that closes while requests wait in its socket resets the connection. Linux still delivers what arrived before
// the reset, so a response that announces the close is read: it answers its own request, and proves that the requests
// behind it were not processed.
func TestAResetDoesNotHideTheResponseThatAnnouncesTheClose(t *testing.T) {
	for _, tr := range transports {
		for _, writeFailsFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/a write fails first: %v", tr, writeFailsFirst), func(t *testing.T) {
				var writes *failingWrites
				gate := make(chan struct{})
				conn, p, owner := dialPipelined(t, tr, testOptions(), func(c net.Conn) net.Conn {
					writes = &failingWrites{Conn: c}
					writes.after.Store(-1)
					return gated{writes, gate}
				})
				first := start(conn, get(t, "first"))
				p.wantRequests("first")
				p.send(textResponse("first"))
				gate <- struct{}{}
				testsupport.NoError(t, wait(t, first))

				f := send(t, conn, p, "a", "b", "c")
				p.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nA")
				p.reset()
				if writeFailsFirst {
					writes.after.Store(0)
					unsent := start(conn, get(t, "d"))
					owner.await(t, "the end of new requests", func(_, changed int) bool { return changed == 1 })
					defer func() {
						err := exchange.AsError(wait(t, unsent))
						testsupport.True(t, err.Progress != exchange.MaybeProcessed, "a request whose write failed without a byte ended with %+v", err)
					}()
				}
				close(gate)
				f.wantResponse(0, "A")
				f.wantError(1, exchange.ConnLost, exchange.NotProcessed, false)
				f.wantError(2, exchange.ConnLost, exchange.NotProcessed, false)
			})
		}
	}
}

// Responses with CL beside TE, obs-fold or a bare LF are accepted, but bytes after them do not
// count.
func TestAmbiguousFramingClosesThePipelineBehindItsResponse(t *testing.T) {
	conn, p, owner := dialProven(t, plain, testOptions())
	f := send(t, conn, p, "a", "b")
	p.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n" + textResponse("evil"))
	f.wantResponse(0, "A")
	f.wantError(1, exchange.ConnLost, exchange.MaybeProcessed, true)
	owner.awaitFreed(t, 3)
	wantReason(t, conn, exchange.ClosedError)
	owner.await(t, "the end of new requests", func(_, changed int) bool { return changed == 1 })
}

// Bytes that arrived before a request was sent are no response to it, though the request was sent
// before they were read. Nor are they if the request's write failed.
func TestBytesThatCameBeforeTheRequestAreUnsolicited(t *testing.T) {
	for name, sent := range map[string]struct{ atRead, now int64 }{
		"sent later":   {atRead: 100, now: 200},
		"write failed": {atRead: 200, now: 100},
	} {
		r := &reader{Pipelined: new(Pipelined), queue: []entry{{start: 100, end: 200}}, n: 1, takenAtRead: sent.atRead}
		r.takenBytes.Store(sent.now)
		r.br = bufio.NewReader(strings.NewReader(textResponse("evil")))
		r.br.Peek(1)
		testsupport.Equal(t, r.serve(), errUnsolicited, "%[2]s: error %[1]v", name)
	}
}

// A response may arrive together with an earlier one. It cannot belong to a request that was sent
// after both were read.
func TestResponseToAnUnsentRequestIsUnsolicited(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.String(), func(t *testing.T) {
			conn, p, owner := dialPipelined(t, tr, testOptions(), nil)
			first := get(t, "first")
			firstDone := start(conn, first)
			p.wantRequests("first")
			waiting := start(conn, get(t, "waiting"))
			awaitOutstanding(t, conn, 2)
			p.send(textResponse("first") + textResponse("evil")) // one segment, one record
			wantResponse(t, wait(t, firstDone), first, 200, "first")
			err := wait(t, waiting)
			testsupport.MustTrue(t, exchange.AsError(err).Outcome == exchange.ConnLost, "the waiting request ended with %v", err)
			owner.awaitFreed(t, 2)
			wantReason(t, conn, exchange.ClosedUnsolicited)
		})
	}
}

func TestLeftoverBehindTheLastPipelinedResponseClosesTheConnection(t *testing.T) {
	for _, tr := range transports {
		for name, parts := range map[string][]string{
			"one record":  {textResponse("A") + "x"},
			"two records": {textResponse("A"), textResponse("evil")},
		} {
			t.Run(tr.String()+"/"+name, func(t *testing.T) {
				conn, p, owner := dialProven(t, tr, testOptions())
				f := send(t, conn, p, "a")
				p.sendTogether(parts...)
				f.wantResponse(0, "A")
				owner.awaitFreed(t, 2)
				wantReason(t, conn, exchange.ClosedLeftover)
				p.wantClosed()
			})
		}
	}
}

// Later bytes may also begin at the end of the read buffer: they stay in TLS, or in the socket.
func TestLeftoverBeyondAFullBufferClosesThePipeline(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.String(), func(t *testing.T) {
			opts := testOptions()
			opts.Depth, opts.MaxResponseHeaderBytes = 1, 2<<10
			conn, p, owner := dialProven(t, tr, opts)
			f := send(t, conn, p, "a")
			a := textResponse(strings.Repeat("a", 2<<10-len("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n")))
			testsupport.MustEqual(t, len(a), opts.pipelineBuffer(), "a response of %d bytes does not fill a buffer of %d", opts.pipelineBuffer())
			p.sendTogether(a + textResponse("evil"))
			testsupport.NoError(t, wait(t, f.done[0]))
			owner.awaitFreed(t, 2)
			wantReason(t, conn, exchange.ClosedLeftover)
		})
	}
}

// usedAndHeld returns a connection that has carried one response. Its reader reads nothing more
// until it is released.
func usedAndHeld(t *testing.T) (conn *Pipelined, p *peer, owner *recorder, gate chan struct{}) {
	t.Helper()
	gate = make(chan struct{})
	conn, p, owner = dialPipelined(t, plain, testOptions(), func(c net.Conn) net.Conn { return gated{c, gate} })
	first := start(conn, get(t, "first"))
	p.wantRequests("first")
	p.send(textResponse("first"))
	gate <- struct{}{}
	testsupport.NoError(t, wait(t, first))
	return conn, p, owner, gate
}

// The reader has not read yet. The check of the socket finds bytes that arrived before the request.
func TestCheckBeforeALoneRequestFindsUnreadBytes(t *testing.T) {
	cases := map[string]struct {
		send   func(p *peer)
		reason exchange.CloseReason
	}{
		"408": {func(p *peer) { p.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n") }, exchange.ClosedUnsolicited},
		"FIN": {func(p *peer) { p.close() }, exchange.ClosedByPeer},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			conn, p, owner, gate := usedAndHeld(t)
			c.send(p) // the reader cannot read it
			for conn.sock.PeekSocket() == socket.Quiet {
			}
			next := start(conn, get(t, "next"))
			owner.await(t, "Changed", func(_, changed int) bool { return changed == 1 })
			close(gate)
			wantError(t, wait(t, next), exchange.ConnLost, exchange.NotSent, false)
			owner.awaitFreed(t, 2)
			wantReason(t, conn, c.reason)
		})
	}
}

// While another request is outstanding, the bytes in the socket are its response.
func TestNoCheckBeforeARequestBehindOthers(t *testing.T) {
	conn, p, owner, gate := usedAndHeld(t)
	b := send(t, conn, p, "b")
	p.send(textResponse("B")) // the reader cannot read it
	c := send(t, conn, p, "c")
	p.send(textResponse("C"))
	close(gate)
	b.wantResponse(0, "B")
	c.wantResponse(0, "C")
	owner.awaitFreed(t, 3)
	wantReason(t, conn, exchange.NotClosed)
}

// failingWrites fails each write after a number of bytes.
type failingWrites struct {
	net.Conn
	after atomic.Int64 // bytes that a write may still send; negative means all
}

var errTestWrite = &net.OpError{Op: "write", Err: errors.New("broken pipe")}

func (c *failingWrites) Write(b []byte) (int, error) {
	left := c.after.Load()
	if left < 0 {
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:min(int64(len(b)), left)])
	c.after.Add(-int64(n))
	if n < len(b) {
		return n, errTestWrite
	}
	return n, nil
}

// The end of a pipelined connection is one failure of the SSP, however many requests wait on it or got a place of it.
func TestTheEndOfAPipelinedConnectionIsOneFailure(t *testing.T) {
	for name, end := range map[string]func(p *peer){
		"EOF":               func(p *peer) { p.close() },
		"connection close":  func(p *peer) { p.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nA") },
		"malformed":         func(p *peer) { p.send("HTTP/9.9\r\n\r\n") },
		"HTTP/1.0 response": func(p *peer) { p.send("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nA") },
	} {
		t.Run(name, func(t *testing.T) {
			conn, p, _ := dialProven(t, plain, testOptions())
			f := send(t, conn, p, "a", "b", "c", "d")
			end(p)
			failures := 0
			for i := range 4 {
				err := wait(t, f.done[i])
				if err != nil && !exchange.AsError(err).Collateral {
					failures++
				}
			}
			late := exchange.AsError(conn.Do(get(t, "late")))
			testsupport.True(t, late.Progress != exchange.MaybeProcessed && late.Collateral, "a request that came after the end failed with %+v", late)
			testsupport.Equal(t, failures, 1, "%d failures of four requests count")
		})
	}
}
