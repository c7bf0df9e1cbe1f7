package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"adbuffer/internal/test/sspsim"
)

func newSim(stdout *os.File) *cobra.Command {
	var o sspsim.Options
	var protocol, behaviour string
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run one simulated SSP, to try a configuration against",
		Long: `Runs a simulated SSP until SIGTERM or Ctrl-C. It responds to every request with an
OpenRTB bid, with the latency and faults of --behaviour. With --control, GET and PATCH /behaviour
show and change the behaviour of the running SSP, and GET /counters shows its counters.
` + behaviourKeys,
		Example: `  adbuffer sim --listen 127.0.0.1:9000

  # a slow SSP without a bid for one request in five
  adbuffer sim --behaviour '{"latency":{"p50":"40ms","p99":"150ms"},"response":{"no_bid":{"share":0.2}}}'

  # every tenth response is a 503 with Retry-After; connections close after 100 requests
  adbuffer sim --behaviour '{"faults":{"status":{"every":10,"retry_after":"2s"}},"connections":{"max_requests":100,"announce":true}}'

  # HTTP/2 with eight streams a connection; it slows down while it runs, and then refuses dials
  adbuffer sim --protocol h2c --behaviour '{"connections":{"max_streams":8}}' --control 127.0.0.1:9001
  curl -X PATCH -d '{"latency":{"p50":"200ms","p99":"800ms"}}' http://127.0.0.1:9001/behaviour
  curl -X PATCH -d '{"faults":{"refuse":true}}' http://127.0.0.1:9001/behaviour`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Behaviour.UnmarshalJSON([]byte(behaviour)); err != nil {
				return fmt.Errorf("--behaviour: %w", err)
			}
			o.Protocol = sspsim.Protocol(protocol)
			err := runSim(cmd.Context(), o, stdout)
			if invalid, ok := errors.AsType[*sspsim.InvalidError](err); ok {
				return errors.New(strings.NewReplacer("Protocol: ", "--protocol ", "Control: ", "--control ").Replace(invalid.Error()))
			}
			return failed(err)
		},
	}
	cmd.Flags().StringVar(&o.Addr, "listen", "127.0.0.1:9000", "host:port; an empty host is every interface")
	cmd.Flags().StringVar(&o.Control, "control", "", "loopback host:port of the control endpoint (default: none)")
	cmd.Flags().StringVar(&protocol, "protocol", string(sspsim.HTTP1), "http1 or h2c; or tls, tls-h2, tls-http1, tls-no-alpn, with a certificate of its own making")
	cmd.Flags().StringVar(&behaviour, "behaviour", "{}", "its behaviour, in JSON")
	return cmd
}

// behaviourKeys is the reference of --behaviour. A test checks that it has every key.
const behaviourKeys = `
The behaviour is JSON. Absent keys mean a healthy SSP. "How often" is {"share": 0.2} for a fifth of
the requests, or {"every": 10} for every tenth one. Durations are strings such as "80ms".

latency
  constant                    the time until a response
  p50, p99, max               or a distribution, from its median, its 99th percentile and its largest value
  slow, slow_share            a second latency, for this share of the requests
  capacity                    beyond this concurrency, responses slow down
response
  no_bid, no_bid_form         how often there is no bid, as "204", "empty" or "document"
  fill_by                     query parameters whose values decide how often a request gets a bid
  kind                        "openrtb", "vast" or "raw"
  size                        bytes: constant, or p50, p95 and max
  echo                        the response has the ids of its request
  headers                     further fields: [{"name": "X-A", "value": "1"}]
  cookies, interim            how often a response has two Set-Cookie fields; a 103 before it
  chunked, trailers, http10, read_to_eof
                              how often a response has this form
connections
  max_requests, idle_timeout  close a connection after so many requests, or when idle for so long
  announce                    announce the close with Connection: close, or GOAWAY
  max_streams                 HTTP/2: concurrent streams; -1 allows none
  max_field                   HTTP/2: bytes of a field; a longer field ends the connection
  http1_only                  how often a connection of --protocol tls gets HTTP/1.1
  pipeline_overlap            the latencies of pipelined requests run in parallel
faults
  refuse, black_hole          true: dials are refused, or get no response
  hang                        how often a connection is accepted and never read
  stall, reset, cut_head, cut_body
                              how often there is no response, a TCP reset, or a truncated response
  status                      how often, and code, retry_after, retry_after_date
  drip                        how often the body comes slowly, in pieces of so many bytes, with a pause after each
  oversized_head, oversized_body
                              how often, and how many bytes
  refuse_stream               HTTP/2: how often a stream gets REFUSED_STREAM
  reset_stream                HTTP/2: how often, its code, and after_head
  goaway                      HTTP/2: how often, its code, and exclude for the request itself
  leftover                    how often bytes that no request asked for follow a response
  malformed                   how often a response violates HTTP, and kinds of violations
`

func runSim(ctx context.Context, o sspsim.Options, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	sim, err := sspsim.Start(o)
	if at := new(net.OpError); errors.As(err, &at) {
		return fmt.Errorf("%w; see --listen and --control", err)
	} else if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "simulated SSP, listening on %s\n", sim.URL())
	if url := sim.ControlURL(); url != "" {
		fmt.Fprintf(stdout, "control endpoint, listening on %s\n", url)
	}
	<-ctx.Done()
	return sim.Close()
}
