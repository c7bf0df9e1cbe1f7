package e2e

import (
	"io"
	"net/http"
	"strings"

	"adbuffer/internal/testsupport"
)

// SendAdmin sends a request to the admin listener.
func (ab *Process) SendAdmin(method, path, body string, fields ...string) (status int, response string) {
	ab.T.Helper()
	req, err := http.NewRequest(method, "http://"+ab.AdminAddr+path, strings.NewReader(body))
	if err != nil {
		ab.T.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testsupport.Patience}
	res, err := client.Do(req)
	if err != nil {
		ab.T.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		ab.T.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// AskAdmin sends a GET to the admin listener.
func (ab *Process) AskAdmin(path string) (status int, body string) {
	ab.T.Helper()
	status, body, err := ab.TryAskAdmin(path)
	if err != nil {
		ab.T.Fatalf("admin: %v\n%s", err, ab.Log)
	}
	return status, body
}

func (ab *Process) TryAskAdmin(path string) (status int, body string, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testsupport.Patience}
	res, err := client.Get("http://" + ab.AdminAddr + path)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}
