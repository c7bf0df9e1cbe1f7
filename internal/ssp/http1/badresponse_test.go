//go:build !race

package http1

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// badResponses are responses that the parser rejects, with the expected errors.
var badResponses = []struct {
	name, response string
	err            error
}{
	{"not HTTP", "SSH-2.0-OpenSSH\r\n", errStatusLine},
	{"short", "HTTP/1.1\r\n", errStatusLine},
	{"empty line in front", "\r\nHTTP/1.1 200 OK\r\n", errStatusLine},
	{"two digits", "HTTP/1.1 20 OK\r\n", errStatusLine},
	{"four digits", "HTTP/1.1 2000 OK\r\n", errStatusLine},
	{"sign", "HTTP/1.1 +20 OK\r\n", errStatusLine},
	{"status 99", "HTTP/1.1 099 OK\r\n", errStatusLine},
	{"status 600", "HTTP/1.1 600 OK\r\n", errStatusLine},
	{"two spaces", "HTTP/1.1  200 OK\r\n", errStatusLine},
	{"tab", "HTTP/1.1\t200 OK\r\n", errStatusLine},
	{"NUL in the reason", "HTTP/1.1 200 O\x00K\r\n", errStatusLine},
	{"CR in the reason", "HTTP/1.1 200 O\rK\r\n", errStatusLine},
	{"HTTP/1.2", "HTTP/1.2 200 OK\r\n", errVersion},
	{"HTTP/2", "HTTP/2.0 200 OK\r\n", errStatusLine},
	{"HTTP/0.9", "HTTP/0.9 200 OK\r\n", errStatusLine},
	{"three version numbers", "HTTP/1.1.1 200 OK\r\n", errStatusLine},
	{"blank in front", " HTTP/1.1 200 OK\r\n", errStatusLine},
	{"lower case", "http/1.1 200 OK\r\n", errStatusLine},
	{"no colon", "HTTP/1.1 200 OK\r\nfoo\r\n", errField},
	{"no name", "HTTP/1.1 200 OK\r\n: foo\r\n", errField},
	{"blank before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n", errField},
	{"blank in the name", "HTTP/1.1 200 OK\r\nContent Length: 1\r\n", errField},
	{"tab before the colon", "HTTP/1.1 200 OK\r\nX\t: y\r\n", errField},
	{"parenthesis in a name", "HTTP/1.1 200 OK\r\nX(: y\r\n", errField},
	{"slash in a name", "HTTP/1.1 200 OK\r\nX/Y: y\r\n", errField},
	{"name in quotes", "HTTP/1.1 200 OK\r\n\"X\": y\r\n", errField},
	{"NUL in a name", "HTTP/1.1 200 OK\r\nX\x00: 1\r\n", errField},
	{"high byte in a name", "HTTP/1.1 200 OK\r\nX\xff: 1\r\n", errField},
	{"NUL in a value", "HTTP/1.1 200 OK\r\nX: \x00\r\n", errFieldValue},
	{"CR in a value", "HTTP/1.1 200 OK\r\nX: a\rb\r\n", errFieldValue},
	{"CR at the end of a value", "HTTP/1.1 200 OK\r\nX: a\r\r\n", errFieldValue},
	{"DEL in a value", "HTTP/1.1 200 OK\r\nX: \x7f\r\n", errFieldValue},
	{"ESC in a value", "HTTP/1.1 200 OK\r\nX: \x1b\r\n", errFieldValue},
	{"fold in front", "HTTP/1.1 200 OK\r\n X: y\r\n", errField},
	{"folded length", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n", errFoldedFraming},
	{"folded coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n , x\r\n", errFoldedFraming},
	{"folded Connection", "HTTP/1.1 200 OK\r\nConnection: x\r\n , close\r\n", errFoldedFraming},
	{"control in a fold", "HTTP/1.1 200 OK\r\nX: y\r\n \x01\r\n", errFieldValue},
	{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX: y\r\nContent-Length: 2\r\n", errContentLength},
	{"the same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n", errContentLength},
	{"a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n", errContentLength},
	{"two lengths in a field", "HTTP/1.1 200 OK\r\nContent-Length: 1 1\r\n", errContentLength},
	{"no length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n", errContentLength},
	{"negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n", errContentLength},
	{"signed length", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n", errContentLength},
	{"hexadecimal length", "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n", errContentLength},
	{"huge length", "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551617\r\n\r\n", errBodyTooLarge},
	{"gzip", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n", errTransferCoding},
	{"chunked twice in a field", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n", errTransferCoding},
	{"chunked with a weight", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked;q=1\r\n", errTransferCoding},
	{"identity", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n", errTransferCoding},
	{"chunked twice", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", errTransferCoding},
	{"empty coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n", errTransferCoding},
	{"VTAB in the coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: \vchunked\r\n", errFieldValue},
	{"chunked in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", errTransferCoding},
	{"switching", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", errSwitching},
	{"interim with a body", "HTTP/1.1 100 Continue\r\nContent-Length: 14\r\n\r\nno status line\r\n", errStatusLine},
	{"interim with a chunked body", "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", errStatusLine},
	{"interim flood", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", maxInterim+1), errInterimFlood},
	{"large head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", testMaxHead-22) + "\r\n\r\n", errHeadTooLarge},
	{"endless head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", testMaxHead), errHeadTooLarge},
	{"many fields", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", testMaxHead/6), errHeadTooLarge},
	{"endless status line", "HTTP/1.1 200 " + strings.Repeat("x", testMaxHead), errHeadTooLarge},
	{"large body", "HTTP/1.1 200 OK\r\nContent-Length: 2001\r\n\r\n", errBodyTooLarge},
	{"large chunk", chunkedHead + "7d1\r\n", syntax.ErrChunksTooLarge},
	{"chunk beyond 64 bits", chunkedHead + "10000000000000001\r\n", syntax.ErrChunksTooLarge},
	{"huge chunk", chunkedHead + "ffffffffffffffffff\r\n", syntax.ErrChunksTooLarge},
	{"large chunks", chunkedHead + "7d0\r\n" + strings.Repeat("x", testMaxBody) + "\r\n1\r\n", syntax.ErrChunksTooLarge},
	{"large body to EOF", "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", testMaxBody+1), errBodyTooLarge},
	{"no chunk size", chunkedHead + "\r\n", syntax.ErrChunk},
	{"no hexadecimal", chunkedHead + "g\r\n", syntax.ErrChunk},
	{"0x", chunkedHead + "0x1\r\nx\r\n", syntax.ErrChunk},
	{"signed chunk", chunkedHead + "+1\r\nx\r\n", syntax.ErrChunk},
	{"negative chunk", chunkedHead + "-1\r\n", syntax.ErrChunk},
	{"extension without a semicolon", chunkedHead + "1 a\r\nx\r\n", syntax.ErrChunk},
	{"blank before a chunk", chunkedHead + " 1\r\nx\r\n", syntax.ErrChunk},
	{"blank behind a chunk size", chunkedHead + "1 \r\nx\r\n", syntax.ErrChunk},
	{"chunk with LF", chunkedHead + "1\nx\r\n", syntax.ErrChunk},
	{"control in an extension", chunkedHead + "1;a=\x00\r\nx\r\n", syntax.ErrChunk},
	{"long extension", chunkedHead + "1;" + strings.Repeat("a", 256), syntax.ErrChunkLine},
	{"chunk too long", chunkedHead + "1\r\nxy\r\n", syntax.ErrChunk},
	{"chunk's end with LF", chunkedHead + "1\r\nx\n0\r\n\r\n", syntax.ErrChunk},
	{"trailer without a colon", chunkedHead + "0\r\nfoo\r\n\r\n", syntax.ErrTrailer},
	{"blank before a trailer's colon", chunkedHead + "0\r\nX : y\r\n\r\n", syntax.ErrTrailer},
	{"fold in front of the trailer", chunkedHead + "0\r\n X: y\r\n\r\n", syntax.ErrTrailer},
	{"folded trailer", chunkedHead + "0\r\nX: y\r\n z\r\n\r\n", syntax.ErrTrailer},
	{"trailer with LF", chunkedHead + "0\r\nX: y\n\r\n", syntax.ErrTrailer},
	{"control in a trailer", chunkedHead + "0\r\nX: \x00\r\n\r\n", syntax.ErrTrailer},
	{"large trailer", chunkedHead + "0\r\n" + strings.Repeat("X: yyyy\r\n", testMaxHead/9+1), syntax.ErrTrailerTooLarge},
	{"endless trailer", chunkedHead + "0\r\nX: " + strings.Repeat("y", testMaxHead), syntax.ErrTrailerTooLarge},
}

func TestMalformedResponsesAreRefusedInAnyPieces(t *testing.T) {
	for _, c := range badResponses {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 3, 10, 100, 1000} {
				got := checkResponse(t, []byte(c.response), exchange.GET, func() int { return size })
				testsupport.MustTrue(t, got.err == c.err.Error(), "%+v, want error %q", got, c.err)
			}
		})
	}
}
