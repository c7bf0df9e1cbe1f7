package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"adbuffer/internal/app/app"
	"adbuffer/internal/operate/admin"
	"adbuffer/internal/operate/adminview"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/wire/header"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	file, method, data, client string
	fields                     []string
	at                         admin.ClientOptions
	asJSON                     bool
}

func newExplain(stdout *os.File) *cobra.Command {
	f := new(explainFlags)
	cmd := &cobra.Command{
		Use:   "explain {--config FILE | --admin URL} URL",
		Short: "Say how a request would be handled, and send nothing",
		Long: `Says how adbuffer would handle a request: the route and the reason for it, the SSPs in
order, the deadline and its source, the request that each SSP would get, and the limits
in force. No SSP gets a request. The request is read by the same code as real requests.
A mirror's copy is not shown.

With --config it uses a configuration file, with --admin the current configuration of a
running adbuffer. URL is the URL of the request, or only its path and query. Secrets are
shown as (hidden). Some lines appear only if they apply:

  now        why a running adbuffer may refuse or delay the request at this moment: breaker,
             pauses, unreachable endpoints, failed look-ups and since when, a full pool
  spare      why an endpoint of a later priority gets no requests
  filtered   which condition on the body keeps the request from an SSP
  shape      what qps.shape knows of the request, and whether it would be dropped
  dropped    a field of the request that the SSP does not get, and the setting that decides it
  machine    which settings this machine lowers`,
		Example: `  adbuffer explain --config config/adbuffer.yaml '/fillbuffer?pub=1'
  adbuffer explain --config config/adbuffer.yaml -X POST -H 'Content-Type: application/json' --data @bid.json http://ads.example/fillbuffer
  adbuffer explain --admin http://127.0.0.1:9090 --client 203.0.113.9 --json /fillbuffer/openx`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("explain takes one URL, but got %d; for example '/fillbuffer?pub=1'", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), stdout, args[0]) },
	}
	fl := cmd.Flags()
	addConfigFlag(cmd, &f.file)
	fl.StringVarP(&f.method, "request", "X", "", "method (default: GET, or POST with --data)")
	fl.StringArrayVarP(&f.fields, "header", "H", nil, "header field, 'Name: value'")
	fl.StringVar(&f.data, "data", "", "body, or @file")
	fl.StringVar(&f.client, "client", "127.0.0.1", "IP address that the request comes from")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	addAdminFlags(cmd, &f.at, "URL of a running adbuffer's admin listener (default: $"+adminVariable+")")
	return cmd
}

func (f *explainFlags) run(ctx context.Context, w io.Writer, target string) error {
	peer, err := netip.ParseAddr(f.client)
	if err != nil {
		return fmt.Errorf("--client %s is no IP address", f.client)
	}
	message, err := f.message(target)
	if err != nil {
		return err
	}
	if f.file == "" && f.at.URL == "" {
		f.at.URL = os.Getenv(adminVariable)
	}
	var x *adminview.Explained
	switch {
	case f.at.URL == "":
		x, err = f.byFile(message, peer)
	case f.file != "":
		return errConfigAndAdmin
	default:
		x, err = f.byAdmin(ctx, message)
	}
	if err != nil {
		return err
	}
	if f.asJSON {
		return failed(printJSON(w, x))
	}
	_, err = io.WriteString(w, x.String())
	return failed(err)
}

func (f *explainFlags) byFile(message []byte, peer netip.Addr) (*adminview.Explained, error) {
	path, err := configPath(f.file)
	if err != nil {
		return nil, err
	}
	cfg, _, err := config.Load(path, config.OSEnv())
	if err != nil {
		return nil, failed(err)
	}
	e, err := app.NewExplainer(cfg)
	if err != nil {
		return nil, failed(err)
	}
	defer e.Close()
	return e.Explain(message, peer), nil
}

func (f *explainFlags) byAdmin(ctx context.Context, message []byte) (*adminview.Explained, error) {
	client, err := newClient(&f.at)
	if err != nil {
		return nil, err
	}
	x := new(adminview.Explained)
	return x, failed(ask(ctx, client, sspTimeout, http.MethodPost, "/explain?client="+url.QueryEscape(f.client), message, x))
}

// message returns the request as a client would send it.
func (f *explainFlags) message(target string) ([]byte, error) {
	body := []byte(f.data)
	if name, ok := strings.CutPrefix(f.data, "@"); ok {
		var err error
		body, err = os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
	}
	method := f.method
	if method == "" && f.data != "" {
		method = http.MethodPost
	}
	var fields []header.NameValue
	for _, field := range f.fields {
		name, value, ok := strings.Cut(field, ":")
		if !ok {
			return nil, fmt.Errorf("-H %q is not 'Name: value'", field)
		}
		fields = append(fields, header.NameValue{Name: name, Value: strings.TrimSpace(value)})
	}
	return requestMessage(method, target, fields, body)
}

// requestMessage returns a request as a client would send it. target is a URL, or a path and a query. Without a
// method, it is a GET.
func requestMessage(method, target string, fields []header.NameValue, body []byte) ([]byte, error) {
	host := "adbuffer"
	target, _, _ = strings.Cut(target, "#") // no client sends the fragment
	if !strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "http://") && !strings.HasPrefix(target, "https://") {
		return nil, fmt.Errorf("%q is neither a URL of http or https nor a path that begins with /", target)
	}
	if !strings.HasPrefix(target, "/") {
		_, rest, _ := strings.Cut(target, "://")
		end := strings.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		host, target = rest[:end], rest[end:]
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", cmp.Or(method, http.MethodGet), target)
	given := map[string]bool{}
	for _, field := range fields {
		given[strings.ToLower(field.Name)] = true
		fmt.Fprintf(&b, "%s: %s\r\n", field.Name, field.Value)
	}
	if !given["host"] {
		fmt.Fprintf(&b, "Host: %s\r\n", host)
	}
	if len(body) > 0 && !given["content-length"] && !given["transfer-encoding"] {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes(), nil
}
