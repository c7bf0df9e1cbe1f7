package e2e

import (
	"encoding/json"
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

// Pool is an SSP's pool as /pools shows it.
type Pool struct {
	Warm       bool
	FairQueues int `json:"fair_queues"`
	Demotions  int
	Auto       struct {
		Need   int
		Counts map[string]int // decisions by kind
	}
}

// Pool asks /pools for the pool of an SSP.
func (ab *Process) Pool(ssp string) Pool {
	ab.T.Helper()
	var shown struct{ Pools []Pool }
	_, body := ab.AskAdmin("/pools?ssp=" + ssp)
	testsupport.NoError(ab.T, json.Unmarshal([]byte(body), &shown))
	testsupport.MustTrue(ab.T, len(shown.Pools) == 1, "/pools shows %d pools of %s", len(shown.Pools), ssp)
	return shown.Pools[0]
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
