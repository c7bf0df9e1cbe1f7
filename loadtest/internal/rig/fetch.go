package rig

import (
	"context"
	"io"
	"net/http"
	"time"

	"adbuffer/loadtest/internal/load"
)

// Fetch sends a GET with these fields and reads the whole body of the response. It returns the error of
// check, which gets both.
func Fetch(ctx context.Context, t *http.Transport, url string, fields []load.Field, check func(*http.Response, []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	for _, f := range fields {
		req.Header.Set(f.Name, f.Value)
	}
	resp, err := (&http.Client{Transport: t, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return check(resp, body)
}
