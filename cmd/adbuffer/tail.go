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

	"adbuffer/internal/admin"
)

func newTail(stdout *os.File) *cobra.Command {
	var (
		at               admin.ClientOptions
		ssp, outcome, id string
		slow             time.Duration
	)
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow the requests of a running adbuffer",
		Long: `Shows the requests of a running adbuffer as they end, at most 50 a second, until Ctrl-C.
Flags choose which; all that are given must hold. On a terminal each request is a line,
red where it failed; elsewhere it is a line of JSON with the fields of the access log.`,
		Example: `  adbuffer tail
  adbuffer tail --ssp openx --outcome deadline
  adbuffer tail --slow 100ms --admin http://10.0.0.7:9090 --token-file token | jq .peer
  adbuffer tail --id 0198c0de-0000-7000-8000-000000000001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := admin.NewClient(at)
			if err != nil {
				return err
			}
			q := url.Values{"ssp": {ssp}, "outcome": {outcome}, "id": {id}}
			if slow > 0 {
				q.Set("slow", slow.String())
			}
			write := writeJSONLine
			if info, err := stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
				write = writeRequestLine
			}
			return failed(client.Lines(cmd.Context(), "/tail?"+q.Encode(), func(line []byte) error { return write(stdout, line) }))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&ssp, "ssp", "", "only requests to this SSP")
	fl.StringVar(&outcome, "outcome", "", "only requests with this outcome, for example deadline")
	fl.StringVar(&id, "id", "", "only the request with this id")
	fl.DurationVar(&slow, "slow", 0, "only requests that took longer")
	addAdminFlags(cmd, &at, "admin", "http://"+defaultAdmin, "URL of the admin listener")
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

// printable replaces what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// writeRequestLine writes a line for eyes. Its texts may come from clients and SSPs.
func writeRequestLine(w io.Writer, line []byte) error {
	var r struct {
		Time                                            time.Time
		ID, Method, Path, Route, Outcome, Source, Error string
		Status                                          int
		TotalMs                                         float64 `json:"total_ms"`
		Skipped                                         uint64
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("a line of the admin listener: %w", err)
	}
	if r.Skipped > 0 {
		_, err := fmt.Fprintf(w, "%s… %d more requests%s\n", yellow, r.Skipped, plain)
		return err
	}
	colour := green
	switch {
	case r.Status >= 500:
		colour = red
	case r.Status >= 400 || r.Outcome != "fill":
		colour = yellow
	}
	texts := strings.Join([]string{r.Source, r.Method, r.Path, r.Error, r.ID}, " ")
	_, err := fmt.Fprintf(w, "%s %s%3d %s%s %v ms %s\n", r.Time.Local().Format("15:04:05.000"), colour, r.Status, printable(r.Outcome), plain, r.TotalMs, printable(texts))
	return err
}
