package admin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/wire/handshake"
)

const (
	maxReplyBytes = 64 << 20
	maxTokenBytes = 4096
	maxLineBytes  = 1 << 20
)

// ErrURL is the error of NewClient for a URL that cannot be the URL of an admin listener.
var ErrURL = errors.New("must be the URL of an admin listener, for example http://127.0.0.1:9090")

// ClientOptions say how a command reaches a running adbuffer's admin listener.
type ClientOptions struct {
	URL               string
	TokenFile         string // "" = no token
	CAFile            string // PEM; "" = the system's authorities
	CertFile, KeyFile string // PEM; "" = no client certificate
	// Insecure accepts any certificate of the listener.
	Insecure bool
}

// Client sends requests to an admin listener.
type Client struct {
	base, token string
	client      http.Client
}

// NewClient reads the files of the options. It opens no connection.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s: %w", o.URL, ErrURL)
	}
	c := &Client{base: strings.TrimSuffix(o.URL, "/")}
	if o.TokenFile != "" {
		b, err := configfile.Read(o.TokenFile, maxTokenBytes)
		if err != nil {
			return nil, fmt.Errorf("--token-file %w", err)
		}
		c.token = strings.TrimSpace(string(b))
	}
	trust := &tls.Config{InsecureSkipVerify: o.Insecure, ServerName: u.Hostname()}
	m, err := configfile.TLSFiles{Cert: o.CertFile, Key: o.KeyFile, CA: o.CAFile}.Load()
	if e := new(configfile.Error); errors.As(err, &e) {
		return nil, fmt.Errorf("--%s %w", strings.ReplaceAll(e.Key, "_", "-"), e)
	}
	trust.RootCAs = m.Authorities
	switch {
	case m.Certificate != nil:
		trust.Certificates = []tls.Certificate{*m.Certificate}
	case o.CertFile != "" || o.KeyFile != "":
		return nil, errors.New("--cert-file and --key-file go together")
	}
	c.client = http.Client{
		// No proxy: an adbuffer that HTTP_PROXY names must not be asked about itself.
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: handshake.VerifyServer(trust)},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this server
	}
	return c, nil
}

// URL returns the listener's URL, without a slash at its end.
func (c *Client) URL() string { return c.base }

// StatusError is a response whose status is not 200.
type StatusError struct {
	URL    string
	Status int
	Body   string // without surrounding white space
}

// Error returns the text of the error. For status 403 it names the options that give access.
func (e *StatusError) Error() string {
	if e.Status == http.StatusForbidden {
		return fmt.Sprintf("%s: %s; see --token-file and --cert-file", e.URL, e.Body)
	}
	return fmt.Sprintf("%s responds %d %s: %.200s", e.URL, e.Status, http.StatusText(e.Status), e.Body)
}

// Get returns the body of path. A status other than 200 is a *StatusError.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.Send(ctx, http.MethodGet, path, nil)
}

// Send sends content to path and returns the response's body, as Get does.
func (c *Client) Send(ctx context.Context, method, path string, content []byte) ([]byte, error) {
	res, err := c.open(ctx, method, path, content)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReplyBytes+1))
	if err == nil && len(body) > maxReplyBytes {
		err = fmt.Errorf("the response is longer than %d bytes", maxReplyBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.base+path, err)
	}
	return body, nil
}

// Lines calls f with each line of the response to path, without the newline, until the response ends, f
// returns an error, or ctx ends.
func (c *Client) Lines(ctx context.Context, path string, f func(line []byte) error) error {
	res, err := c.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	in.Buffer(nil, maxLineBytes)
	for in.Scan() {
		if err := f(in.Bytes()); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return in.Err()
}

// open sends a request and returns its response, whose status is 200. The caller closes the body.
func (c *Client) open(ctx context.Context, method, path string, content []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.client.Do(req)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return nil, fmt.Errorf("%w; see --admin, and admin.listen of the running adbuffer", err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return nil, fmt.Errorf("%w; see --ca-file", err)
	}
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer res.Body.Close()
	if res.Header.Get("X-Adbuffer-Source") != "" {
		return nil, fmt.Errorf("%s is adbuffer's listener for clients, not its admin listener; see --admin", c.base)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxReplyBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.base+path, err)
	}
	return nil, &StatusError{URL: c.base + path, Status: res.StatusCode, Body: strings.TrimSpace(string(body))}
}
