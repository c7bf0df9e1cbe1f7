package rig

import (
	"context"
	"io"
	"net/http"
	"time"

	"adbuffer/loadtest/internal/load"
)

// Fetch sends a GET with these fields, and returns the response and its whole body.
func Fetch(ctx context.Context, t *http.Transport, url string, fields []load.Field) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range fields {
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
