package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"adbuffer/internal/operate/admin"
)

func newTail(stdout *os.File) *cobra.Command {
	var (
		at               admin.ClientOptions
		ssp, outcome, id string
		route            string
		slow             time.Duration
	)
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the requests of a running adbuffer",
		Long: `Shows the requests of a running adbuffer as they end, at most 50 a second, until Ctrl-C.
Flags select requests; a request must match all of them. On a terminal each request is a line:
time, status and outcome, duration, SSP and endpoint (or each leg with its outcome),
method and path, id and error. A failed request is red. Without a terminal each request
is a line of JSON with the fields of the access log.`,
		Example: `  adbuffer tail
  adbuffer tail --ssp openx --outcome deadline
  adbuffer tail --slow 100ms --admin http://10.0.0.7:9090 --token-file token | jq .peer
  adbuffer tail --id 0198c0de-0000-7000-8000-000000000001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := runningClient(&at)
			if err != nil {
				return err
			}
			q := url.Values{}
			for name, value := range map[string]string{"ssp": ssp, "route": route, "outcome": outcome, "id": id} {
				if value != "" {
					q.Set(name, value)
				}
			}
			if slow != 0 {
				q.Set("slow", slow.String())
			}
			write := writeJSONLine
			if info, err := stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
				write = writeRequestLine
			}
			err = client.Lines(cmd.Context(), "/tail?"+q.Encode(), func(line []byte) error { return write(stdout, line) })
			if err == nil {
				cmd.PrintErrln(client.URL() + " has ended the connection")
			}
			return failed(err)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&ssp, "ssp", "", "only requests to this SSP")
	fl.StringVar(&route, "route", "", "only requests of this route; none: requests that match no route")
	fl.StringVar(&outcome, "outcome", "", "only requests with this outcome, or with a leg that has it; for example deadline")
	fl.StringVar(&id, "id", "", "only the request with this id")
	fl.DurationVar(&slow, "slow", 0, "only requests that took longer than this")
	addAdminFlags(cmd, &at, runningHelp)
	return cmd
}

func writeJSONLine(w io.Writer, line []byte) error {
	_, err := w.Write(append(line, '\n'))
	return err
}

// Colours of a terminal.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	plain  = "\x1b[0m"
)

// printable replaces characters that could control the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// tailLine is a decoded line of /tail.
type tailLine struct {
	Time                                     time.Time
	ID, Method, Path, Outcome, SSP, Endpoint string
	Error                                    string
	Status                                   int
	TotalMs                                  float64 `json:"total_ms"`
	Legs                                     []struct{ SSP, Outcome string }
	Skipped                                  uint64
}

// asked returns the SSPs of the request: one with its endpoint, or each leg with its outcome.
func (l *tailLine) asked() string {
	switch {
	case len(l.Legs) > 0:
		legs := make([]string, len(l.Legs))
		for i, leg := range l.Legs {
			legs[i] = leg.SSP + ":" + leg.Outcome
		}
		return strings.Join(legs, ",")
	case l.SSP == "":
		return "-"
	case l.Endpoint == "":
		return l.SSP
	}
	return l.SSP + "@" + l.Endpoint
}

func (l *tailLine) colour() string {
	switch {
	case l.Status >= 500:
		return red
	case l.Status >= 400 || l.Outcome != "fill" && l.Outcome != "merged":
		return yellow
	}
	return green
}

// writeRequestLine writes a line for a terminal: time, status and outcome, duration, SSP, request, id and
// error. Texts that clients and SSPs control are made printable.
func writeRequestLine(w io.Writer, line []byte) error {
	var l tailLine
	if err := json.Unmarshal(line, &l); err != nil {
		return fmt.Errorf("a line of the admin listener: %w", err)
	}
	if l.Skipped > 0 {
		_, err := fmt.Fprintf(w, "%s… %d more requests%s\n", yellow, l.Skipped, plain)
		return err
	}
	texts := fmt.Sprintf("%-28s %s %s  %s  %s", l.asked(), l.Method, l.Path, l.ID, l.Error)
	_, err := fmt.Fprintf(w, "%s %s%3d %-18s%s %9.1f ms  %s\n", l.Time.Local().Format("15:04:05.000"), l.colour(), l.Status,
		printable(l.Outcome), plain, l.TotalMs, printable(strings.TrimRight(texts, " ")))
	return err
}
