package proxy_test

import (
	"io"
	"testing"

	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

func TestBytesOfClientsAreCounted(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	testsupport.Equal(t, m.series("adbuffer_client_received_bytes_total", ""), 0, "%v bytes before the first request")
	c := m.dial()
	const request = "GET /fill HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
	io.WriteString(c, request)
	b, err := io.ReadAll(c)
	testsupport.NoError(t, err)
	testsupport.Eventually(t, "all bytes are counted", func() bool {
		return m.series("adbuffer_client_received_bytes_total", "") == float64(len(request)) && m.series("adbuffer_client_sent_bytes_total", "") == float64(len(b))
	})
}
