package reports

import (
	"context"
	"fmt"

	"adbuffer/loadtest/internal/rig"
)

// soakUpstream is an nginx that answers with what it was asked.
type soakUpstream struct {
	process     *rig.Process
	url, caFile string
	log         string // a line for each request, see readLog
}

// The answer carries the number in its head and at the start of its body; the
// rest of the body has a length that depends on the method.
const upstreamConfig = `default_type application/json;
log_format account '$arg_cb $connection_requests';
keepalive_requests %[1]d;
http2_max_concurrent_streams 128;
server {
	listen %[2]s%[3]s backlog=4096;
	access_log %[4]s account buffer=64k flush=1s;
	location / {
		add_header X-Echo-Cb $arg_cb;
		return 200 '$arg_cb {"id":"$arg_cb","method":"$request_method","seatbid":[{"bid":[{"id":"1","impid":"1","price":0.5,"adm":"$request_uri"}]}]}';
	}
}`

func startUpstream(ctx context.Context, r *rig.Rig, w way) (*soakUpstream, error) {
	port, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	name := "soak-" + w.id
	u := &soakUpstream{url: "http://" + addr + "/bid", log: r.Dir + "/" + name + ".log"}
	config := ""
	options := ""
	if w.tls {
		cert, err := r.Certificate(name, "127.0.0.1")
		if err != nil {
			return nil, err
		}
		u.url, u.caFile = "https://"+addr+"/bid", cert.CA
		options = " ssl http2"
		config = fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; ssl_session_cache shared:s:2m;\n", cert.Cert, cert.Key)
	}
	config += fmt.Sprintf(upstreamConfig, perConnection, addr, options, u.log)
	u.process, err = r.StartNginx(ctx, name, "", config, addr)
	return u, err
}
