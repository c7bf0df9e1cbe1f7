package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

func reverseProxy(args []string) error {
	flags := flag.NewFlagSet("reverseproxy", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "host:port")
	upstream := flags.String("upstream", "", "http://host:port or https://host:port")
	caFile := flags.String("ca", "", "certificate authority of the upstream")
	http2 := flags.Bool("http2", false, "HTTP/2 to the upstream")
	maxConns := flags.Int("max-conns", 0, "connections to the upstream; 0 is no limit, as is the default of net/http")
	_ = flags.Parse(args) // it exits on an error
	target, err := url.Parse(*upstream)
	if err != nil || target.Host == "" {
		return fmt.Errorf("-upstream %q: must be a URL", *upstream)
	}
	transport := &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, MaxConnsPerHost: *maxConns, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: *http2}
	if *caFile != "" {
		pem, err := os.ReadFile(*caFile)
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
	server := &http.Server{Addr: *listen, Handler: proxy, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute}
	return server.ListenAndServe()
}
