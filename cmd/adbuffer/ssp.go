package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/operate/admin"
)

// sspFlags are the flags of ssp.
type sspFlags struct {
	at       admin.ClientOptions
	endpoint string
	asJSON   bool
}

// sspTimeout is how long a command waits for the admin listener.
const sspTimeout = 10 * time.Second

func newSSP(stdout *os.File) *cobra.Command {
	f := new(sspFlags)
	cmd := &cobra.Command{
		Use:   "ssp {list | enable | drain | disable | weight}",
		Short: "List the SSPs of a running adbuffer, enable, drain or disable one, or change a weight",
		Long: `Lists and changes the SSPs and endpoints of a running adbuffer, over its admin listener.

  enable    send requests to it
  drain     no new requests; requests in flight end, and idle connections stay
  disable   no new requests, and idle connections close

Requests to a drained or disabled SSP end as ssp_disabled; a route with other SSPs uses
them. With --endpoint the change applies to one endpoint, and the SSP's other endpoints
get its share. Changes survive a reload and end with the process.`,
		Example: `  adbuffer ssp list
  adbuffer ssp drain openx
  adbuffer ssp disable openx --endpoint use.rtb.openx.example:443
  adbuffer ssp weight openx 3 --endpoint usw.rtb.openx.example:443
  adbuffer ssp enable openx --admin https://10.0.0.7:9090 --token-file token`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no command ssp %s; there are list, enable, drain, disable and weight", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // without it, Args is not asked
	}
	fl := cmd.PersistentFlags()
	fl.StringVar(&f.endpoint, "endpoint", "", "host:port of one endpoint of the SSP")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	addAdminFlags(cmd, &f.at, runningHelp)
	cmd.AddCommand(&cobra.Command{
		Use: "list [SSP]", Short: "List SSPs and their endpoints", Args: cobra.MaximumNArgs(1),
		Example: "  adbuffer ssp list\n  adbuffer ssp list openx --json",
		RunE:    func(cmd *cobra.Command, args []string) error { return f.list(cmd.Context(), stdout, args) },
	})
	for _, v := range []struct{ verb, state, short string }{
		{"enable", "enabled", "Send requests to an SSP or an endpoint again"},
		{"drain", "draining", "Send no new requests to an SSP or an endpoint; idle connections stay"},
		{"disable", "disabled", "Send no new requests to an SSP or an endpoint, and close idle connections"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: v.verb + " SSP", Short: v.short, Args: cobra.ExactArgs(1),
			Example: fmt.Sprintf("  adbuffer ssp %[1]s openx\n  adbuffer ssp %[1]s openx --endpoint use.rtb.openx.example:443", v.verb),
			RunE: func(cmd *cobra.Command, args []string) error {
				return f.change(cmd.Context(), stdout, args[0], "state", admin.Change{State: v.state})
			},
		})
	}
	cmd.AddCommand(&cobra.Command{
		Use: "weight SSP N --endpoint HOST:PORT", Short: "Change the weight of an endpoint", Args: cobra.ExactArgs(2),
		Example: "  adbuffer ssp weight openx 3 --endpoint use.rtb.openx.example:443",
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return fmt.Errorf("weight %q is not a whole number", args[1])
			}
			if f.endpoint == "" {
				return errors.New("--endpoint is missing: it names the endpoint whose weight changes; adbuffer ssp list shows the endpoints")
			}
			return f.change(cmd.Context(), stdout, args[0], "weight", admin.Change{Weight: &n})
		},
	})
	return cmd
}

func (f *sspFlags) list(ctx context.Context, w io.Writer, args []string) error {
	client, err := runningClient(&f.at)
	if err != nil {
		return err
	}
	var all, chosen []admin.SSPState
	if err := ask(ctx, client, sspTimeout, http.MethodGet, "/ssps", nil, &all); err != nil {
		return failed(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.SSP)
		if len(args) == 0 || s.SSP == args[0] {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return failed(&admin.UnknownError{What: "SSP", Name: args[0], Known: names})
	}
	if f.asJSON {
		return failed(printJSON(w, chosen))
	}
	writeSSPs(w, chosen)
	return nil
}

func (f *sspFlags) change(ctx context.Context, w io.Writer, ssp, what string, c admin.Change) error {
	client, err := runningClient(&f.at)
	if err != nil {
		return err
	}
	path := "/ssps/" + url.PathEscape(ssp)
	if f.endpoint != "" {
		path += "/endpoints/" + url.PathEscape(f.endpoint)
	}
	content, err := json.Marshal(c)
	if err != nil {
		return failed(err)
	}
	var s admin.SSPState
	var e admin.EndpointState
	var changed any = &s
	if f.endpoint != "" {
		changed = &e
	}
	err = ask(ctx, client, sspTimeout, http.MethodPut, path+"/"+what, content, changed)
	switch {
	case err != nil:
		return failed(err)
	case f.asJSON:
		return failed(printJSON(w, changed))
	case f.endpoint != "":
		fmt.Fprintf(w, "%s, endpoint %s: %s, weight %d\n", ssp, e.Endpoint, e.State, e.Weight)
		return nil
	}
	fmt.Fprintf(w, "%s: %s", ssp, s.State)
	if s.State == "enabled" && !slices.ContainsFunc(s.Endpoints, func(e admin.EndpointState) bool { return e.Active }) {
		fmt.Fprint(w, ", but gets no requests: all its endpoints are drained or disabled; see adbuffer ssp list")
	}
	fmt.Fprintln(w)
	return nil
}

func writeSSPs(w io.Writer, all []admin.SSPState) {
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "SSP\tENDPOINT\tSTATE\tWEIGHT\tPRIORITY\tSHARE\tCONNECTIONS\tIN FLIGHT")
	for _, s := range all {
		for _, e := range s.Endpoints {
			state := e.State
			if e.Unreachable {
				state += ", unreachable"
			}
			if s.State != "enabled" {
				state += ", SSP " + s.State
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%.1f %%\t%d\t%d\n", s.SSP, e.Endpoint, state, e.Weight, e.Priority, 100*e.Share, e.Connections, e.InFlight)
		}
	}
	table.Flush()
}

func printJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
