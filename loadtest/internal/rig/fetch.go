package rig

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
)

// Fetch sends a request to the server with this scheme, host and port, and returns the response and its whole body.
func Fetch(ctx context.Context, t *http.Transport, server string, q load.Template) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, server+load.Fill(q.Path, 1), strings.NewReader(q.Literal))
	if err != nil {
		return nil, nil, err
	}
	for _, f := range q.Headers {
		req.Header.Set(f.Name, f.Value)
	}
	resp, err := (&http.Client{Transport: t, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}
