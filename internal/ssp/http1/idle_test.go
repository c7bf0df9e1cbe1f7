package http1

import (
	"crypto/tls"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

// TLS may decrypt later bytes together with a response. If max_response_header_bytes is smaller than
// a TLS record, these bytes are neither in the read buffer nor in the socket. They must not become the
// start of the next response.
func TestDecryptedBytesBehindAResponseCloseTheConnection(t *testing.T) {
	for _, buffer := range []int{512, 4096, 15000} {
		t.Run(strconv.Itoa(buffer), func(t *testing.T) {
			conn, p, owner := dial(t, overTLS, with(func(o *Options) { o.MaxResponseHeaderBytes = buffer }))
			ex, done := ask(t, conn, p)
			// The response ends exactly at the end of its read buffer.
			head := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(buffer/2) + "\r\nX-Padding: "
			body := strings.Repeat("b", buffer/2)
			head += strings.Repeat("p", buffer-len(head)-len("\r\n\r\n")-len(body)) + "\r\n\r\n"
			p.send(head + body + textResponse("evil")) // one record
			wantResponse(t, wait(t, done), ex, 200, body)
			owner.awaitFreed(t, 1)
			testsupport.MustTrue(t, !conn.Idle(), "a connection with bytes behind a response is reused")
			wantReason(t, conn, exchange.ClosedUnsolicited)
		})
	}
}

func TestUnsolicitedResponseClosesAnIdleConnection(t *testing.T) {
	for _, tr := range transports {
		for _, k := range kinds {
			for _, used := range []bool{false, true} {
				t.Run(fmt.Sprint(tr, "/", k), func(t *testing.T) {
					conn, p, owner := k.dial(t, tr, testOptions())
					if used {
						exchangeOnce(t, conn, p, "first")
					}
					p.send("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					p.close()
					awaitNotIdle(t, conn)
					wantReason(t, conn, exchange.ClosedUnsolicited)
					if k == pipelined {
						owner.await(t, "Changed", func(_, changed int) bool { return changed == 1 })
						wantError(t, conn.Do(get(t, "next")), exchange.ConnLost, exchange.NotSent, false)
					}
				})
			}
		}
	}
}

// awaitNotIdle waits until Idle notices the action of the peer.
func awaitNotIdle(tb testing.TB, conn exchange.Conn) {
	tb.Helper()
	testsupport.Eventually(tb, "the connection is not idle", func() bool { return !conn.Idle() })
}

func TestIdleFindsThatThePeerClosed(t *testing.T) {
	for name, end := range map[string]func(*peer){"FIN": (*peer).close, "RST": (*peer).reset} {
		for _, tr := range transports {
			for _, k := range kinds {
				t.Run(fmt.Sprint(name, "/", tr, "/", k), func(t *testing.T) {
					conn, p, owner := k.dial(t, tr, testOptions())
					exchangeOnce(t, conn, p, "first")
					end(p)
					awaitNotIdle(t, conn)
					wantReason(t, conn, exchange.ClosedByPeer)
					testsupport.MustTrue(t, !conn.Idle(), "a closed connection is idle")
					if k == pipelined {
						owner.await(t, "Changed", func(_, changed int) bool { return changed == 1 })
					}
				})
			}
		}
	}
}

// Session tickets arrive before the first request. The connection stays usable.
func TestWarmTLSConnectionWithTicketsPendingStaysUsable(t *testing.T) {
	conn, p, _ := dial(t, overTLS, testOptions())
	testsupport.MustEqual(t, conn.sock.Peek(), socket.Readable, "no ticket came: %v")
	for range 3 {
		testsupport.MustTrue(t, conn.Idle(), "closed: %v", conn.CloseReason())
	}
	exchangeOnce(t, conn, p, "first")
	testsupport.MustTrue(t, conn.Idle(), "closed: %v", conn.CloseReason())
	exchangeOnce(t, conn, p, "second")
}

// An incomplete record may hold any bytes.
func TestPartOfARecordIsUnsolicited(t *testing.T) {
	conn, p, _ := dial(t, overTLS, testOptions())
	exchangeOnce(t, conn, p, "first")
	tcp := p.tcp.(*corkable)
	tcp.cork()
	p.send(textResponse("evil"))
	half := tcp.held[:len(tcp.held)/2]
	tcp.Conn.Write(half)
	awaitNotIdle(t, conn)
	wantReason(t, conn, exchange.ClosedUnsolicited)
}

// A deadline in the middle of a TLS record must not lose the record.
func TestResponseAbandonedWithinARecordIsReadToItsEnd(t *testing.T) {
	for _, k := range kinds {
		conn, p, owner := k.dial(t, overTLS, testOptions())
		exchangeOnce(t, conn, p, "first")
		ex := get(t, "late")
		ex.Deadline = time.Now().Add(time.Second) // a slow machine needs some of it for the half record
		done := start(conn, ex)
		p.wantRequests("late")
		tcp := p.tcp.(*corkable)
		tcp.cork()
		p.send(textResponse("late"))
		half := len(tcp.held) / 2
		tcp.Conn.Write(tcp.held[:half])
		wantEndsWith(t, done, exchange.ErrDeadline)
		tcp.held = tcp.held[half:]
		tcp.uncork()
		owner.awaitFreed(t, 2)
		wantReason(t, conn, exchange.NotClosed)
		testsupport.MustTrue(t, conn.Idle(), "closed: %v", conn.CloseReason())
		exchangeOnce(t, conn, p, "next")
		conn.Close(exchange.ClosedDrain)
	}
}

// With two records in one segment, the second must neither be lost in TLS nor become the next
// response.
func TestRecordBehindAResponseClosesTheConnection(t *testing.T) {
	conn, p, _ := dial(t, overTLS, testOptions())
	ex, done := ask(t, conn, p)
	p.sendTogether(textResponse("A"), textResponse("evil"))
	wantResponse(t, wait(t, done), ex, 200, "A")
	testsupport.MustTrue(t, !conn.Idle(), "a connection with a record behind a response is reused")
	wantReason(t, conn, exchange.ClosedUnsolicited)
}

// close_notify arrives in the segment of the response.
func TestCloseNotifyBehindAResponseClosesTheConnection(t *testing.T) {
	conn, p, _ := dial(t, overTLS, testOptions())
	ex, done := ask(t, conn, p)
	tcp := p.tcp.(*corkable)
	tcp.cork()
	p.send(textResponse("A"))
	p.conn.(*tls.Conn).CloseWrite()
	tcp.SetWriteDeadline(time.Time{}) // CloseWrite sets a deadline
	tcp.uncork()
	wantResponse(t, wait(t, done), ex, 200, "A")
	testsupport.MustTrue(t, !conn.Idle(), "a connection that the peer has closed is reused")
	wantReason(t, conn, exchange.ClosedByPeer)
}

func TestIdleConnectionSendsCloseNotify(t *testing.T) {
	for _, k := range kinds {
		conn, p, owner := k.dial(t, overTLS, testOptions())
		exchangeOnce(t, conn, p, "first")
		owner.awaitFreed(t, 1)
		conn.Close(exchange.ClosedIdle)
		if b, err := io.ReadAll(p.tcp); err != nil || len(b) == 0 { // crypto/tls takes a FIN for close_notify
			t.Fatalf("%s: the peer read %d bytes, %v; want the record of close_notify", k, len(b), err)
		}
	}
}

// A body that ends with the connection is complete only if TLS has sent close_notify: RFC 9112,
// section 9.8. Otherwise an attacker on the path could cut it.
func TestABodyThatEndsWithTheConnectionNeedsCloseNotify(t *testing.T) {
	for _, k := range kinds {
		for _, notify := range []bool{true, false} {
			conn, p, _ := k.dial(t, overTLS, testOptions())
			ex, done := ask(t, conn, p)
			p.send("HTTP/1.1 200 OK\r\n\r\nhalf of it")
			if notify {
				p.conn.Close()
			} else {
				p.tcp.Close()
			}
			err := wait(t, done)
			if notify {
				wantResponse(t, err, ex, 200, "half of it")
			} else {
				wantError(t, err, exchange.ConnLost, exchange.MaybeProcessed, false)
			}
		}
	}
}
