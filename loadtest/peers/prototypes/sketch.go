package main

import (
	"flag"
	"time"

	"github.com/valyala/fasthttp"
)

// sketch is the prototype that a field report measured. It responds with a fixed JSON,
// or forwards to an upstream.
func sketch(args []string) error {
	flags := flag.NewFlagSet("sketch", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "host:port")
	upstream := flags.String("upstream", "", "http://host:port/path; empty: a fixed JSON")
	_ = flags.Parse(args) // it exits on an error
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
	return (&fasthttp.Server{Handler: handler, ReadTimeout: 30 * time.Second, WriteTimeout: 5 * time.Second, IdleTimeout: 5 * time.Minute}).ListenAndServe(*listen)
}
