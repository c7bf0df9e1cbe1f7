// Command reverseproxy is net/http/httputil's ReverseProxy with the settings
// that a careful user gives it, for comparison.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "host:port")
	upstream := flag.String("upstream", "", "http://host:port or https://host:port")
	caFile := flag.String("ca", "", "certificate authority of the upstream")
	http2 := flag.Bool("http2", false, "HTTP/2 to the upstream")
	maxConns := flag.Int("max-conns", 0, "connections to the upstream; 0 is no limit, as is the default of net/http")
	flag.Parse()
	target, err := url.Parse(*upstream)
	if err != nil || target.Host == "" {
		log.Fatalf("-upstream %q: must be a URL", *upstream)
	}
	transport := &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, MaxConnsPerHost: *maxConns, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: *http2}
	if *caFile != "" {
		pem, err := os.ReadFile(*caFile)
		if err != nil {
			log.Fatal(err)
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
	log.Fatal(server.ListenAndServe())
}
