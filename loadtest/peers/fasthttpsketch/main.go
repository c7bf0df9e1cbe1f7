// Command fasthttpsketch is the prototype that a field report measured: fasthttp
// with one client of 2 048 connections a host. It answers a fixed JSON, or
// forwards to an upstream.
package main

import (
	"flag"
	"log"
	"time"

	"github.com/valyala/fasthttp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "host:port")
	upstream := flag.String("upstream", "", "http://host:port/path; empty answers a fixed JSON")
	flag.Parse()
	client := &fasthttp.Client{MaxConnsPerHost: 2048, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second}
	handler := func(ctx *fasthttp.RequestCtx) {
		ctx.SetContentType("application/json")
		ctx.SetBodyString(`{"ad":"fixed"}`)
	}
	if *upstream != "" {
		handler = func(ctx *fasthttp.RequestCtx) {
			query := ctx.QueryArgs().QueryString()
			ctx.Request.SetRequestURI(*upstream)
			ctx.Request.URI().SetQueryStringBytes(query)
			if err := client.Do(&ctx.Request, &ctx.Response); err != nil {
				ctx.Error(err.Error(), fasthttp.StatusBadGateway)
			}
		}
	}
	log.Fatal((&fasthttp.Server{Handler: handler, ReadTimeout: 30 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute}).ListenAndServe(*listen))
}
