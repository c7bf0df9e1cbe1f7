package e2e

import (
	"io"
	"net/http"
	"strings"

	"adbuffer/internal/test/testsupport"
)

// SendAdmin sends a request to the admin listener. fields are names and values.
func (ab *Process) SendAdmin(method, path, body string, fields ...string) (status int, response string) {
	ab.T.Helper()
	status, response, err := ab.TrySendAdmin(method, path, body, fields...)
	testsupport.MustTrue(ab.T, err == nil, "admin: %v\n%s", err, ab.Log)
	return status, response
}

// AskAdmin sends a GET to the admin listener.
func (ab *Process) AskAdmin(path string) (status int, body string) {
	ab.T.Helper()
	return ab.SendAdmin("GET", path, "")
}

// TrySendAdmin is SendAdmin for a listener that may refuse the connection.
func (ab *Process) TrySendAdmin(method, path, body string, fields ...string) (status int, response string, err error) {
	scheme := "http://"
	if ab.AdminTLS != nil {
		scheme = "https://"
	}
	req, err := http.NewRequest(method, scheme+ab.AdminAddr+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Cache-Control", "no-cache") // otherwise /metrics may be a second old
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, TLSClientConfig: ab.AdminTLS}, Timeout: testsupport.Patience}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}
