package rig

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/valyala/fasthttp"
)

// The servers of this file are proxies with which adbuffer is compared, and an upstream. Each serves a route.

// constant is an upstream that costs as little as possible, because it shares a core with the load. It responds to
// all requests with the same JSON.
func constant(o Route, _ func(any) error) error {
	s := &fasthttp.Server{NoDefaultDate: true, MaxRequestBodySize: 1 << 20, ReadBufferSize: 16 << 10,
		DisableHeaderNamesNormalizing: true, DisablePreParseMultipartForm: true, Concurrency: 1 << 17,
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.Response.Header.SetContentType("application/json")
			ctx.Response.SetBodyString(o.Serve)
		}}
	return s.ListenAndServe(o.Addr)
}

// reverseProxy is ReverseProxy of net/http/httputil, as a careful user configures it.
func reverseProxy(o Route, _ func(any) error) error {
	target, err := url.Parse(o.Upstreams[0])
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: o.HTTP2}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}}
	server := &http.Server{Addr: o.Addr, Handler: proxy, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute}
	return server.ListenAndServe()
}

// sketch is the prototype that a field report measured: fasthttp, with one client of 2 048 connections a
// host. It responds with a fixed JSON, or forwards to an upstream.
func sketch(o Route, _ func(any) error) error {
	client := &fasthttp.Client{MaxConnsPerHost: 2048, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	handler := func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		ctx.SetBodyString(`{"ad":"fixed"}`)
	}
	if len(o.Upstreams) > 0 {
		handler = func(ctx *fasthttp.RequestCtx) {
			query := ctx.QueryArgs().QueryString()
			ctx.Request.SetRequestURI(o.Upstreams[0] + "/bid")
			ctx.Request.URI().SetQueryStringBytes(query)
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error(err.Error(), fasthttp.StatusBadGateway)
			}
		}
	}
	return (&fasthttp.Server{Handler: handler, ReadTimeout: 30 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute}).ListenAndServe(o.Addr)
}
