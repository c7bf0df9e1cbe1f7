package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	adminTimeout  = 15 * time.Second
	maxAdminBytes = 64 << 20
)

// adminFlags say how to reach a running adbuffer's admin listener.
type adminFlags struct {
	url               string
	tokenFile, caFile string
	certFile, keyFile string
	insecure          bool
}

// adminClient asks an admin listener.
type adminClient struct {
	base, token string
	client      http.Client
}

func (f *adminFlags) open() (*adminClient, error) {
	u, err := url.Parse(f.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--against %s: must be the URL of an admin listener, for example http://127.0.0.1:9090", f.url)
	}
	c := &adminClient{base: strings.TrimSuffix(f.url, "/")}
	if f.tokenFile != "" {
		b, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, failed(fmt.Errorf("--token-file: %w", err))
		}
		c.token = strings.TrimSpace(string(b))
	}
	trust := &tls.Config{InsecureSkipVerify: f.insecure}
	if f.caFile != "" {
		b, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, failed(fmt.Errorf("--ca-file: %w", err))
		}
		if trust.RootCAs = x509.NewCertPool(); !trust.RootCAs.AppendCertsFromPEM(b) {
			return nil, failed(fmt.Errorf("--ca-file %s: must hold a certificate in PEM", f.caFile))
		}
	}
	if f.certFile != "" || f.keyFile != "" {
		cert, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		if err != nil {
			return nil, failed(fmt.Errorf("--cert-file, --key-file: %w", err))
		}
		trust.Certificates = []tls.Certificate{cert}
	}
	c.client = http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: trust},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for this server
	}
	return c, nil
}

func (c *adminClient) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAdminBytes))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.base+path, err)
	case res.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s: %s; see --token-file and --cert-file", c.base+path, strings.TrimSpace(string(body)))
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s: is it the admin listener of an adbuffer?", c.base+path, res.Status)
	}
	return body, nil
}

// running is the configuration that an adbuffer has in force.
type running struct {
	version string
	hash    string // of the configuration, with what is hidden
	yaml    []byte // without
}

// running asks for the configuration in force.
func (c *adminClient) running(ctx context.Context) (*running, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	for range 10 {
		before, err := c.service(ctx)
		if err != nil {
			return nil, err
		}
		if before.yaml, err = c.get(ctx, "/config"); err != nil {
			return nil, err
		}
		after, err := c.service(ctx)
		if err != nil {
			return nil, err
		}
		if before.hash == after.hash { // the hash belongs to what was read
			return before, nil
		}
	}
	return nil, errors.New(c.base + " is given one configuration after the other")
}

func (c *adminClient) service(ctx context.Context) (*running, error) {
	body, err := c.get(ctx, "/pools")
	if err != nil {
		return nil, err
	}
	var v struct {
		Service struct {
			Version string `json:"version"`
			Hash    string `json:"config_hash"`
		} `json:"service"`
	}
	if err := json.Unmarshal(body, &v); err != nil || v.Service.Hash == "" {
		return nil, fmt.Errorf("%s/pools does not name a configuration: is it the admin listener of an adbuffer?", c.base)
	}
	return &running{version: v.Service.Version, hash: v.Service.Hash}, nil
}
