package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
)

// A longer response was cut without an error: a bundle then had half a part.
func TestAResponseThatIsTooLongIsAnError(t *testing.T) {
	more := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for range maxReplyBytes >> 20 {
			w.Write(chunk)
		}
		w.Write(chunk[:more])
	}))
	defer s.Close()
	c, err := NewClient(ClientOptions{URL: s.URL})
	testsupport.NoError(t, err)
	if body, err := c.Get(t.Context(), "/pools"); err != nil || len(body) != maxReplyBytes {
		t.Errorf("%d bytes, error %v", len(body), err)
	}
	more = 1
	if _, err := c.Get(t.Context(), "/pools"); err == nil || !strings.Contains(err.Error(), "longer than 67108864 bytes") {
		t.Errorf("a longer response: error %v", err)
	}
}
